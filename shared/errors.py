"""The tree of errors: a code and its parameters, never a sentence.

    TallystickError
    ├── Refused        the request or the configuration is wrong; nothing was touched
    ├── Trouble        ends a unit, and says by its class what becomes of the job
    │   ├── Passing    tried again with backoff, FAILED when the tries are used up
    │   ├── Waits      tried again after a while, as often as it takes; no failure is counted
    │   ├── TooMuch    tried again at once with a smaller page; a verdict for a page of one
    │   ├── Verdict    FAILED now; an operator decides
    │   └── Missing    PAUSED; resumed by the node that finds the cause gone
    ├── Busy           somebody else is at it; nothing was claimed and no attempt counted
    ├── Stale          the claim was lost to another holder or an operator; nothing was recorded
    └── Uncertain      a write may or may not have been recorded; the lease decides

Words for people are made from code and parameters in ``shared.messages``.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Stable names of everything that can go wrong, in jobs, answers and logs."""

    # What ends a unit.
    STORAGE_BUSY = "STORAGE_BUSY"
    EXPORT_FAILED = "EXPORT_FAILED"
    STORAGE_LIMIT = "STORAGE_LIMIT"
    STORAGE_FAILED = "STORAGE_FAILED"
    FILE_CHECK_FAILED = "FILE_CHECK_FAILED"
    POLICY_CHANGED = "POLICY_CHANGED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    SCHEMA_CHANGED = "SCHEMA_CHANGED"
    BATCH_TOO_LARGE = "BATCH_TOO_LARGE"
    CRASH_LOOP = "CRASH_LOOP"
    STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"
    CREDENTIAL_MISSING = "CREDENTIAL_MISSING"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    LATE_ROWS = "LATE_ROWS"
    WINDOW_COUNT = "WINDOW_COUNT"
    WINDOW_HELD_BACK = "WINDOW_HELD_BACK"
    PRUNE_INCOMPLETE = "PRUNE_INCOMPLETE"
    ROWS_KEPT = "ROWS_KEPT"
    FILE_PASSED_OVER = "FILE_PASSED_OVER"

    # What ends an invocation.
    CLAIM_LOST = "CLAIM_LOST"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    DATABASE_UNAVAILABLE = "DATABASE_UNAVAILABLE"
    DATABASE_REFUSED = "DATABASE_REFUSED"
    TOO_LITTLE_TIME = "TOO_LITTLE_TIME"
    AWS_UNAVAILABLE = "AWS_UNAVAILABLE"
    FOLLOW_UP_FAILED = "FOLLOW_UP_FAILED"
    INVOCATION_LOST = "INVOCATION_LOST"

    # What is wrong with a request or the configuration.
    SETTINGS_INVALID = "SETTINGS_INVALID"
    DATABASE_URL_MISSING = "DATABASE_URL_MISSING"
    EMBEDDED_MISSING = "EMBEDDED_MISSING"
    EMBEDDED_FAILED = "EMBEDDED_FAILED"
    EMBEDDED_BLOCKED = "EMBEDDED_BLOCKED"
    SCHEMA_MISSING = "SCHEMA_MISSING"
    SCHEMA_OLDER = "SCHEMA_OLDER"
    SCHEMA_NEWER = "SCHEMA_NEWER"
    MIGRATION_ALTERED = "MIGRATION_ALTERED"
    SCHEMA_UNTRUSTED = "SCHEMA_UNTRUSTED"
    KINDS_INVALID = "KINDS_INVALID"
    KINDS_DIFFER = "KINDS_DIFFER"
    KINDS_FILE_MISSING = "KINDS_FILE_MISSING"
    KIND_UNKNOWN = "KIND_UNKNOWN"
    KIND_TABLE_MISSING = "KIND_TABLE_MISSING"
    KIND_REFUSED = "KIND_REFUSED"
    TABLE_UNKNOWN = "TABLE_UNKNOWN"
    DRAFT_REFUSED = "DRAFT_REFUSED"
    TIME_AMBIGUOUS = "TIME_AMBIGUOUS"
    TIME_MISSING = "TIME_MISSING"
    TIME_UNIT_UNKNOWN = "TIME_UNIT_UNKNOWN"
    SOURCE_MISSING = "SOURCE_MISSING"
    EXPORT_DIRECTORY = "EXPORT_DIRECTORY"
    EXPORT_STOPPED = "EXPORT_STOPPED"
    SOURCE_FAILED = "SOURCE_FAILED"
    OPERATION_UNKNOWN = "OPERATION_UNKNOWN"
    NAMESPACE_UNKNOWN = "NAMESPACE_UNKNOWN"
    NAMESPACE_AMBIGUOUS = "NAMESPACE_AMBIGUOUS"
    NAMESPACE_EXISTS = "NAMESPACE_EXISTS"
    NAMESPACE_MISMATCH = "NAMESPACE_MISMATCH"
    POLICY_MISSING = "POLICY_MISSING"
    POLICY_DISABLED = "POLICY_DISABLED"
    PLAN_MISSING = "PLAN_MISSING"
    PLAN_DISABLED = "PLAN_DISABLED"
    JOB_UNKNOWN = "JOB_UNKNOWN"
    JOB_OPEN = "JOB_OPEN"
    ACTION_NOT_ALLOWED = "ACTION_NOT_ALLOWED"
    BUDGET_SMALLER = "BUDGET_SMALLER"
    REVISION_STALE = "REVISION_STALE"
    DIFFERENCE_STALE = "DIFFERENCE_STALE"
    REASON_INVALID = "REASON_INVALID"
    NAME_INVALID = "NAME_INVALID"
    VALUE_OUT_OF_RANGE = "VALUE_OUT_OF_RANGE"
    VOLUME_NOT_CONFIGURED = "VOLUME_NOT_CONFIGURED"
    VOLUME_EXISTS = "VOLUME_EXISTS"
    VOLUME_UNKNOWN = "VOLUME_UNKNOWN"
    DIRECTORY_UNREADABLE = "DIRECTORY_UNREADABLE"
    ARCHIVE_TABLE_UNKNOWN = "ARCHIVE_TABLE_UNKNOWN"
    ROW_TOO_LARGE = "ROW_TOO_LARGE"
    ARCHIVE_COLUMN_UNKNOWN = "ARCHIVE_COLUMN_UNKNOWN"
    INDEX_UNUSABLE = "INDEX_UNUSABLE"
    TEMPORARY_UNUSABLE = "TEMPORARY_UNUSABLE"
    AWS_EXTRA_MISSING = "AWS_EXTRA_MISSING"
    AWS_NOT_CONFIGURED = "AWS_NOT_CONFIGURED"
    AWS_REFUSED = "AWS_REFUSED"
    FUNCTION_FAILED = "FUNCTION_FAILED"
    FUNCTION_NOT_MOUNTED = "FUNCTION_NOT_MOUNTED"
    FUNCTION_THROTTLED = "FUNCTION_THROTTLED"
    FUNCTION_UNKNOWN = "FUNCTION_UNKNOWN"
    STACK_MISSING = "STACK_MISSING"
    STACK_UNKNOWN = "STACK_UNKNOWN"
    SECRET_UNUSABLE = "SECRET_UNUSABLE"  # noqa: S105 - a code
    METRICS_EXTRA_MISSING = "METRICS_EXTRA_MISSING"
    METRICS_NOT_SERVED = "METRICS_NOT_SERVED"
    QUERY_EXTRA_MISSING = "QUERY_EXTRA_MISSING"
    QUERY_REFUSED = "QUERY_REFUSED"
    QUERY_FAILED = "QUERY_FAILED"
    OUTPUT_REFUSED = "OUTPUT_REFUSED"
    ARCHIVE_UNKNOWN = "ARCHIVE_UNKNOWN"
    CHOICE_INVALID = "CHOICE_INVALID"
    CODE_UNKNOWN = "CODE_UNKNOWN"
    RESTORE_REFUSED = "RESTORE_REFUSED"
    RESTORE_UNSAFE = "RESTORE_UNSAFE"

    # What ends the reading of an archive, or a restore.
    ARCHIVE_BROKEN = "ARCHIVE_BROKEN"
    ROOT_NOT_FOUND = "ROOT_NOT_FOUND"
    RESTORE_CONFLICT = "RESTORE_CONFLICT"
    RESTORE_FAILED = "RESTORE_FAILED"

    # What an examination finds, beside the codes above.
    GRANT_MISSING = "GRANT_MISSING"
    SOURCE_STANDBY = "SOURCE_STANDBY"
    VOLUME_MOUNT = "VOLUME_MOUNT"
    VOLUME_NEARLY_FULL = "VOLUME_NEARLY_FULL"
    CLOCK_SKEW = "CLOCK_SKEW"
    PLAN_OVERDUE = "PLAN_OVERDUE"
    JOB_STUCK = "JOB_STUCK"
    LEDGER_DRIFT = "LEDGER_DRIFT"
    EVENTS_RECENT = "EVENTS_RECENT"
    SCHEDULE_DISABLED = "SCHEDULE_DISABLED"
    INVOCATIONS_FAILED = "INVOCATIONS_FAILED"
    QUEUE_NOT_EMPTY = "QUEUE_NOT_EMPTY"
    ALARM_RAISED = "ALARM_RAISED"


class TallystickError(Exception):
    """What every error of ours is: ``code`` and ``params`` (JSON-able, no row values, no secrets).

    ``words`` are put in by an edge that can pass on nothing but the text of an error.
    """

    def __init__(self, code: Code, **params: object) -> None:
        """Keep the code and the parameters; the text shown by a traceback names both."""
        super().__init__(code, params)
        self.code = code
        self.params = params
        self.words: str | None = None

    def __str__(self) -> str:
        """Show code and parameters, for logs and tracebacks; people read ``shared.messages``."""
        if self.words is not None:
            return self.words
        return f"{self.code} {self.params}" if self.params else str(self.code)


class Refused(TallystickError):
    """The request or the configuration is wrong; nothing was touched."""


class Trouble(TallystickError):
    """A unit could not be done; the class says what becomes of the job."""


class Passing(Trouble):
    """Passes by itself: the unit is tried again after a backoff."""


class Waits(Trouble):
    """Somebody else has to end something first: the unit is tried again later, and never FAILED for it."""


class TooMuch(Trouble):
    """The page was too large for a limit or the deadline: tried again at once with half of it."""


class Verdict(Trouble):
    """Will not pass by itself: the job is FAILED and an operator decides."""


class Missing(Trouble):
    """Storage or a credential is not there: the job is PAUSED until a node finds it again."""


class Busy(TallystickError):
    """Another process holds what is needed; nothing was claimed."""


class Stale(TallystickError):
    """The claim was lost: another holder or an operator moved the job on."""


class Uncertain(TallystickError):
    """A write was sent and its answer lost; whether it was recorded is not known."""
