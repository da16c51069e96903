"""The examination of a deployment on AWS: what its own services say of it, each asked once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.aws import deployed, stack
from shared.aws.function import mount_cause
from shared.doctor.finding import Finding, Section, Severity, Subject, of_error
from shared.errors import Code, TallystickError
from shared.plans.outlook import QUIET_SECONDS, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.aws.deployed import Alarm, Failure, Function, Queue, Schedule, Ticks
    from shared.aws.stack import Resource

# So many ticks in a row must have been missed.
MISSED = 3


def examine(name: str) -> tuple[Section, ...]:
    """Examine a stack and return a section for each subject; it changes nothing.

    Raises ``Refused`` (STACK_UNKNOWN), and as asking AWS does, where the stack itself cannot be looked at.
    """
    found = stack.resources(name)
    planned: list[Schedule] = []

    def schedules() -> list[Finding]:
        planned.extend(deployed.schedules(found))
        return judged_schedules(planned)

    return (
        _section(Subject.FUNCTIONS, lambda: judged_functions(deployed.functions(found))),
        _section(Subject.SCHEDULES, schedules),
        _section(Subject.TICKS, lambda: _ticks(found, planned)),
        _section(Subject.QUEUES, lambda: judged_queues(deployed.queues(found))),
        _section(Subject.ALARMS, lambda: judged_alarms(deployed.alarms(found))),
    )


def judged_functions(functions: Sequence[Function]) -> list[Finding]:
    """Return which functions cannot be invoked, and which were stopped."""
    findings = []
    for each in functions:
        cause = mount_cause(each.reason)
        if cause or each.state == "Failed":
            code = Code.FUNCTION_NOT_MOUNTED if cause else Code.FUNCTION_FAILED
            why = {"cause": cause or "state", "type": each.reason, "detail": each.detail}
            params = {"function": each.name, **why}
            findings.append(Finding(code, Subject.FUNCTIONS, Severity.ERROR, params))
        if each.reserved == 0:
            params = {"function": each.name, "cause": "stopped"}
            code = Code.FUNCTION_THROTTLED
            findings.append(Finding(code, Subject.FUNCTIONS, Severity.WARNING, params))
    return findings


def judged_schedules(schedules: Sequence[Schedule]) -> list[Finding]:
    """Return which schedules are switched off; that a stack has none is one finding."""
    code, subject = Code.SCHEDULE_DISABLED, Subject.SCHEDULES
    if not schedules:
        return [Finding(code, subject, Severity.ERROR, {"cause": "none"})]
    return [
        Finding(code, subject, Severity.WARNING, {"schedule": each.name, "function": each.function})
        for each in schedules
        if not each.enabled
    ]


def judged_ticks(schedules: Sequence[Schedule], ticks: Sequence[Ticks]) -> list[Finding]:
    """Return which functions missed several ticks of a schedule that is on, and which end in errors."""
    findings = []
    patience = {each.function: _patience(each) for each in schedules if each.enabled}
    for each in ticks:
        limit = patience.get(each.function)
        if limit is not None and (each.quiet_seconds is None or each.quiet_seconds > limit):
            params = {"cause": "deployed", "function": each.function, "seconds": limit}
            findings.append(Finding(Standing.NO_TICK, Subject.TICKS, Severity.ERROR, params))
        if each.errors:
            counts = {"errors": each.errors, "invocations": each.invocations}
            params = {"function": each.function, **counts}
            severity = Severity.ERROR if each.errors >= each.invocations else Severity.WARNING
            findings.append(Finding(Code.INVOCATIONS_FAILED, Subject.TICKS, severity, params))
    return findings


def judged_queues(queues: Sequence[Queue]) -> list[Finding]:
    """Return which queues are not empty, and what their events came to; a mount's trouble by its cause."""
    findings = []
    for queue in queues:
        if queue.waiting:
            params: dict[str, object] = {"queue": queue.url, "waiting": queue.waiting}
            for each in queue.failures[:1]:
                params |= {"function": each.function, "error": each.error, "detail": each.detail}
            code = Code.QUEUE_NOT_EMPTY
            findings.append(Finding(code, Subject.QUEUES, Severity.WARNING, params))
            findings += _unmounted(queue.failures)
    return findings


def judged_alarms(alarms: Sequence[Alarm]) -> list[Finding]:
    """Return the alarms that are raised, in their own words."""
    return [
        Finding(
            Code.ALARM_RAISED,
            Subject.ALARMS,
            Severity.ERROR,
            {"alarm": each.name, "meaning": each.meaning, "detail": each.reason},
        )
        for each in alarms
    ]


def _section(subject: Subject, look: Callable[[], list[Finding]]) -> Section:
    """Look at one subject; what stops it is a finding and does not stop the next."""
    try:
        return Section(subject, tuple(look()))
    except TallystickError as error:
        return Section(subject, (of_error(error, subject),))


def _ticks(found: tuple[Resource, ...], schedules: Sequence[Schedule]) -> list[Finding]:
    limits = [limit for each in schedules if (limit := _patience(each)) is not None]
    names = sorted(each.identity for each in found if each.kind == stack.FUNCTION)
    counted = deployed.ticks(names, max([QUIET_SECONDS, *limits]), QUIET_SECONDS)
    return judged_ticks(schedules, counted)


def _patience(schedule: Schedule) -> float | None:
    """Return after how many seconds without a tick a schedule has stopped; None where its ticks vary."""
    if schedule.seconds is None:
        return None
    return max(QUIET_SECONDS, MISSED * schedule.seconds)


def _unmounted(failures: Sequence[Failure]) -> list[Finding]:
    """Return each cause that kept a function from its volume, once."""
    causes = {
        cause: each
        for each in reversed(failures)
        if (cause := mount_cause(f"{each.error} {each.detail}"))
    }
    return [
        Finding(
            Code.FUNCTION_NOT_MOUNTED,
            Subject.QUEUES,
            Severity.ERROR,
            {"function": each.function, "cause": cause, "detail": each.detail},
        )
        for cause, each in causes.items()
    ]
