"""A process that has imported everything, and forks a tick when asked to: so no import is among its calls.

One JSON document a line: what to run comes in, what became of it goes out. Started by ``inject.py``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from shared import loop
from shared.plans.schedule import KnownKind
from shared.tick import Node, Wanted, tick
from tests.crash import ptrace
from tests.crash.follow import Act, Followed

REPORT_MAX_BYTES = 60_000


def main() -> None:
    """Answer until nobody asks any more."""
    ptrace.require_linux_x86()
    for line in sys.stdin:
        asked = json.loads(line)
        gate, told = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.read(gate[0], 1)
            os.write(told[1], _ticked(asked))
            os._exit(0)
        os.close(told[1])
        acts = tuple(Act(**act) for act in asked["acts"])
        followed = Followed(pid, str(Path(asked["node"]["root"]).resolve()), acts)
        ptrace.seize(pid)
        ptrace.go_on(pid)
        os.write(gate[1], b"x")
        followed.run()
        while followed.status is None:
            _say(followed, None)
            sys.stdin.readline()
            followed.run()
        with os.fdopen(told[0], "rb") as pipe:
            report = pipe.read()
        for end in gate:
            os.close(end)
        _say(followed, json.loads(report) if report else None)


def _say(followed: Followed, report: Any) -> None:  # noqa: ANN401 - whatever the tick came to
    said = {
        "held": followed.held is not None,
        "calls": followed.calls,
        "hits": followed.hits,
        "changes": [{**vars(each), "data": each.data.hex()} for each in followed.changes],
        "report": report,
        "signal": os.WTERMSIG(followed.status)
        if followed.status is not None and os.WIFSIGNALED(followed.status)
        else None,
    }
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _ticked(asked: dict[str, Any]) -> bytes:
    """Tick once and say what became of it; an exception is an answer too, the caller judges it."""
    node = asked["node"]
    kinds = tuple(KnownKind(**kind) for kind in node["kinds"])
    there = Node(**{**node, "kinds": kinds, "root": Path(node["root"])})
    wanted = Wanted(operation=asked["operation"])
    try:
        if asked["timeout"] is None:
            report = tick(there, wanted)
        else:
            report = loop.watched(there, wanted, asked["timeout"])
    except Exception as error:  # noqa: BLE001 - the judge of it is the test
        code = getattr(error, "code", None)
        params = getattr(error, "params", {})
        said: dict[str, Any] = {
            "raised": type(error).__name__,
            "said": str(error),
            "code": code,
            "params": params,
        }
    else:
        outcome = report.outcome
        said = {"ending": outcome.ending, "code": outcome.code, "params": outcome.params}
    return json.dumps(said, default=str)[:REPORT_MAX_BYTES].encode()


if __name__ == "__main__":
    main()
