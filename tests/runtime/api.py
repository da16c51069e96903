"""The Runtime API of the platform, as its client sees it: where it asks for events and brings answers."""

from __future__ import annotations

import json
import queue
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

RESPONSE_MAX_BYTES = 6 * 1024 * 1024 + 100
ARN = "arn:aws:lambda:eu-central-1:123456789012:function:tallystick:live"
PREFIX = "/2018-06-01/runtime/"


@dataclass(frozen=True)
class Event:
    """An invocation that waits to be taken: its id, its payload, and when it must have ended (Unix time)."""

    request: str
    payload: bytes
    ends_at: float


@dataclass(frozen=True)
class Said:
    """What the client said: ``next``, ``response``, ``error`` or ``init``; or ``end``: it is no more.

    Errors have a type.
    """

    what: str
    body: bytes = b""
    error: str | None = None


def failure(what: str, error: str, text: str) -> Said:
    """Return an error that the platform itself reports."""
    body = json.dumps({"errorType": error, "errorMessage": text}).encode()
    return Said(what, body, error)


class RuntimeApi(ThreadingHTTPServer):
    """Hands out the events put into ``events`` and puts what the client says into ``said``."""

    daemon_threads = True
    # A client that was killed while it waited leaves a thread that waits as well.
    block_on_close = False

    def __init__(self) -> None:
        """Listen on a port of this machine, at once."""
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.events: queue.Queue[Event | None] = queue.Queue()
        self.said: queue.Queue[Said] = queue.Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Return host and port."""
        return f"127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Pass over the connection of a client that was killed; anything else is a fault of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def close(self) -> None:
        """Stop listening and let go of whoever waits for an event."""
        self.events.put(None)
        self.shutdown()
        self.server_close()


class _Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body leave together: sent one by one, the second waits for the first to be acknowledged.
    wbufsize = -1

    @property
    def api(self) -> RuntimeApi:
        return cast("RuntimeApi", self.server)

    def do_GET(self) -> None:
        self.api.said.put(Said("next"))
        event = self.api.events.get()
        if event is None:
            self.close_connection = True
            return
        headers = {
            "Lambda-Runtime-Aws-Request-Id": event.request,
            "Lambda-Runtime-Deadline-Ms": str(int(event.ends_at * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": ARN,
            "Lambda-Runtime-Trace-Id": "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=0",
        }
        self._send(200, event.payload, headers)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        what = "init" if self.path == f"{PREFIX}init/error" else self.path.rpartition("/")[2]
        error = None if what == "response" else json.loads(body)["errorType"]
        said = Said(what, body, error)
        if what == "response" and len(body) > RESPONSE_MAX_BYTES:
            text = f"Response payload size exceeded the maximum ({RESPONSE_MAX_BYTES} bytes)"
            self._send(413, failure(what, "RequestEntityTooLarge", text).body)
            said = failure("error", "Function.ResponseSizeTooLarge", text)
        else:
            self._send(202, b'{"status":"OK"}')
        self.api.said.put(said)

    def _send(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as declared above
        """Say nothing: what is of interest is in ``said``."""
