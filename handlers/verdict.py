"""The verdict about one archive as machines read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handlers.shape import message, words

if TYPE_CHECKING:
    from handlers.shape import Json
    from shared.chain.verify import ChainReport
    from shared.errors import TallystickError


def chain(report: ChainReport, directory: str) -> Json:
    """Return the verdict about one directory, and how far the walk through it came."""
    verdict = str(report.verdict)
    params = dict(report.params)
    if report.reason is not None:
        params["cause"] = str(report.reason)
    if report.unrecorded:
        params["unrecorded"] = list(report.unrecorded)
    manifest, position = report.manifest, report.position
    return {
        "directory": directory,
        "verdict": verdict,
        "anchored": report.anchored,
        # What lies past the expected tail ends nothing: nobody vouches for it.
        "final": position.final and not report.unrecorded if position else False,
        "job": manifest.job if manifest else None,
        "namespace": manifest.namespace.name if manifest else None,
        "kind": manifest.kind if manifest else None,
        "batches": position.seq if position else 0,
        "roots": position.roots if position else 0,
        "rows": position.rows if position else 0,
        "bytes": position.bytes if position else 0,
        "tail": position.tail if position else None,
        "unrecorded": list(report.unrecorded),
        "damages": [
            {**damage, "message": words(str(damage["cause"]), damage).happened}
            for damage in report.damages
        ],
        "damages_left_out": report.damages_left_out,
        "sound": [list(run) for run in report.runs],
        "harmless": list(report.harmless),
        "params": params,
        **message(verdict, params),
    }


def unread(error: TallystickError, directory: str) -> Json:
    """Return the line of an archive that could not be read, as ``chain`` would."""
    return {
        "directory": directory,
        "verdict": "UNREADABLE",
        "anchored": False,
        "final": False,
        **dict.fromkeys(("job", "namespace", "kind")),
        **dict.fromkeys(("batches", "roots", "rows", "bytes"), 0),
        "tail": None,
        "unrecorded": [],
        "damages": [],
        "damages_left_out": 0,
        "sound": [],
        "harmless": [],
        "params": dict(error.params),
        **message("UNREADABLE", error.params),
    }
