"""One scheduled event drains a backlog, in the platform's runtime and by the package's own client."""

from __future__ import annotations

import pytest

from tests.aws.functions import Reply, listening
from tests.runtime.api import ARN
from tests.runtime.environment import Start

ACCOUNT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.mark.parametrize(
    ("limit", "outcomes"),
    [
        ("10", ["progressed", "progressed", "finished", "idle"]),
        ("1", ["progressed", "progressed"]),
    ],
)
def test_one_scheduled_event_drains_a_backlog_as_far_as_the_setting_lets_it(
    functions: Start, settings: dict[str, str], limit: str, outcomes: list[str]
) -> None:
    with listening() as api:
        api.replies[ARN] = lambda _event: Reply()
        asking = {"AWS_ENDPOINT_URL_LAMBDA": api.url, "TALLYSTICK_FOLLOW_UP_TICKS": limit}
        archive = functions("handlers.archive.handler", settings | ACCOUNT | asking)
        answers = [archive.invoke({"scheduled_time": "2026-11-30T12:00:00Z"})]
        # The list grows as it is gone through.
        answers.extend(archive.invoke(call.event) for call in api.calls)
    assert [answer.payload["outcome"] for answer in answers] == outcomes
    assert len(archive.environments) == 1
