"""The API that functions are invoked by, as clients see it: what moto has no machine for."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from typing import Any, cast
from urllib.parse import parse_qsl, unquote


@dataclass(frozen=True)
class Reply:
    """What the API answers: a payload, the kind of the function's error if it ended in one, and its log.

    What is ``lost`` is done, and not answered.
    """

    payload: object = None
    error: str | None = None
    log: str = ""
    status: int = 200
    refusal: str | None = None
    lost: bool = False


@dataclass(frozen=True)
class Call:
    """One request: the function it names, how it is to be invoked, and with what."""

    function: str
    kind: str
    event: Any


class Functions(ThreadingHTTPServer):
    """Answers invocations with what ``replies`` says for a function, and notes them in ``calls``.

    What a function is set to stands in ``settings``, the resources of stacks in ``stacks``; both can be asked
    for, and the former be changed.
    """

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a port of this machine, at once."""
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.replies: dict[str, Callable[[Any], Reply]] = {}
        self.calls: list[Call] = []
        self.settings: dict[str, dict[str, Any]] = {}
        self.stacks: dict[str, list[tuple[str, str, str]]] = {}
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


def handled(handler: Callable[[Any, Any], object], event: object, context: object) -> Reply:
    """Return what the platform answers of a handler's invocation; standard output goes into its log."""
    with redirect_stdout(StringIO()) as log:
        try:
            return Reply(handler(event, context), log=log.getvalue())
        except Exception as error:  # noqa: BLE001 - as the platform does
            said = {"errorType": type(error).__name__, "errorMessage": str(error)}
            return Reply(said, error="Unhandled", log=log.getvalue())


def refusal(status: int, kind: str, **more: str) -> Reply:
    """Return the answer of a service that invokes nothing."""
    return Reply({"Message": f"said by a test: {kind}", **more}, status=status, refusal=kind)


class _Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    @property
    def functions(self) -> Functions:
        return cast("Functions", self.server)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/":
            self._stack(dict(parse_qsl(body.decode())))
            return
        name = unquote(self.path.split("/")[3])
        kind = self.headers.get("X-Amz-Invocation-Type", "RequestResponse")
        call = Call(name, kind, json.loads(body))
        self.functions.calls.append(call)
        answer = self.functions.replies.get(name)
        if answer is None:
            self._send(refusal(404, "ResourceNotFoundException"))
            return
        reply = answer(call.event)
        if reply.lost:
            self.close_connection = True
            return
        self._send(Reply(status=202) if kind == "Event" and reply.refusal is None else reply)

    def do_GET(self) -> None:
        _, _, _, name, what = self.path.split("/")
        found = self.functions.settings.get(unquote(name))
        if found is None:
            self._send(refusal(404, "ResourceNotFoundException"))
        elif what == "concurrency":
            self._send(Reply({key: found[key] for key in found if key.startswith("Reserved")}))
        else:
            self._send(Reply(found))

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = unquote(self.path.split("/")[3])
        self.functions.settings[name] |= json.loads(body)
        self._send(Reply(self.functions.settings[name]))

    def do_DELETE(self) -> None:
        del self.functions.settings[unquote(self.path.split("/")[3])][
            "ReservedConcurrentExecutions"
        ]
        self._send(Reply(status=204))

    def _stack(self, asked: dict[str, str]) -> None:
        """Answer with the resources of a stack, two to a page."""
        found = self.functions.stacks.get(asked["StackName"])
        if found is None:
            text = "<Code>ValidationError</Code><Message>Stack does not exist</Message>"
            self._xml(400, f"<ErrorResponse><Error>{text}</Error></ErrorResponse>")
            return
        begin = int(asked.get("NextToken", "0"))
        members = "".join(
            f"<member><LogicalResourceId>{name}</LogicalResourceId><ResourceType>{kind}</ResourceType>"
            f"<PhysicalResourceId>{identity}</PhysicalResourceId></member>"
            for name, kind, identity in found[begin : begin + 2]
        )
        more = f"<NextToken>{begin + 2}</NextToken>" if begin + 2 < len(found) else ""
        listed = f"<StackResourceSummaries>{members}</StackResourceSummaries>{more}"
        result = f"<ListStackResourcesResult>{listed}</ListStackResourcesResult>"
        self._xml(200, f"<ListStackResourcesResponse>{result}</ListStackResourcesResponse>")

    def _xml(self, status: int, text: str) -> None:
        self._write(status, text.encode(), {"Content-Type": "text/xml"})

    def _send(self, reply: Reply) -> None:
        body = b"" if reply.status in {202, 204} else json.dumps(reply.payload).encode()
        headers = {
            "Content-Type": "application/json",
            "X-Amz-Executed-Version": "1",
            "X-Amz-Function-Error": reply.error or "",
            "X-Amz-Log-Result": base64.b64encode(reply.log.encode()).decode(),
            "x-amzn-ErrorType": reply.refusal or "",
        }
        self._write(reply.status, body, headers)

    def _write(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as declared above
        """Say nothing: what is of interest is in ``calls``."""
