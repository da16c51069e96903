"""The API that functions are invoked by, as clients see it: what moto has no machine for."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import unquote


@dataclass(frozen=True)
class Reply:
    """What the API answers: a payload, the kind of the function's error if it ended in one, and its log."""

    payload: object = None
    error: str | None = None
    log: str = ""
    status: int = 200
    refusal: str | None = None


@dataclass(frozen=True)
class Call:
    """One request: the function it names, how it is to be invoked, and with what."""

    function: str
    kind: str
    event: Any


class Functions(ThreadingHTTPServer):
    """Answers invocations with what ``replies`` says for a function, and notes them in ``calls``."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a port of this machine, at once."""
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.replies: dict[str, Callable[[Any], Reply]] = {}
        self.calls: list[Call] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def listening() -> Iterator[Functions]:
    """Listen for invocations; nothing of it is left behind."""
    made = Functions()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()


def refusal(status: int, kind: str, **more: str) -> Reply:
    """Return the answer of a service that invokes nothing."""
    return Reply({"Message": f"said by a test: {kind}", **more}, status=status, refusal=kind)


class _Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self) -> None:
        functions = cast("Functions", self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = unquote(self.path.split("/")[3])
        kind = self.headers.get("X-Amz-Invocation-Type", "RequestResponse")
        call = Call(name, kind, json.loads(body))
        functions.calls.append(call)
        answer = functions.replies.get(name)
        if answer is None:
            return self._send(refusal(404, "ResourceNotFoundException"))
        if kind == "Event":
            reply = answer(None)
            return self._send(reply if reply.refusal else Reply(status=202))
        return self._send(answer(call.event))

    def _send(self, reply: Reply) -> None:
        body = b"" if reply.status == 202 else json.dumps(reply.payload).encode()
        self.send_response(reply.status)
        headers = {
            "Content-Length": str(len(body)),
            "Content-Type": "application/json",
            "X-Amz-Executed-Version": "1",
            "X-Amz-Function-Error": reply.error,
            "X-Amz-Log-Result": base64.b64encode(reply.log.encode()).decode(),
            "x-amzn-ErrorType": reply.refusal,
        }
        for header, value in headers.items():
            if value:
                self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as declared above
        """Say nothing: what is of interest is in ``calls``."""
