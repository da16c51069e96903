"""The one seam to AWS: clients with short timeouts, and what their errors mean."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from shared.errors import Code, Passing, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Of a host with several addresses each is tried for this long, so it is short: an API of one's own region
# answers within milliseconds, or has no way to it at all.
CONNECT_SECONDS = 1.0
READ_SECONDS = 3.0
# With both attempts spent on each of four addresses this comes to 15 seconds of a tick's 45.
ATTEMPTS = 2
DETAIL_MAX_CHARS = 200

# What an API says when it will answer later.
LATER = frozenset(
    {
        "InternalServiceError",
        "RequestLimitExceeded",
        "RequestThrottled",
        "ServiceException",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
SERVER_FAULT = 500


@cache
def client(service: str, *, attempts: int = ATTEMPTS, read_seconds: float = READ_SECONDS) -> Any:  # noqa: ANN401 - botocore makes its classes at run time
    """Return the client of a service, made when it is first asked for and kept for the process.

    Raises ``Refused`` (AWS_EXTRA_MISSING, AWS_NOT_CONFIGURED) where it cannot be made.
    """
    try:
        import boto3  # noqa: PLC0415 - a fifth of a cold start
        from botocore.config import Config  # noqa: PLC0415
    except ImportError as error:
        raise Refused(Code.AWS_EXTRA_MISSING, cause="boto3") from error
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=read_seconds,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        # An answer that is long in coming must not be lost to a gateway that forgets silent connections.
        tcp_keepalive=True,
    )
    with answers(service):
        return boto3.client(service, config=config)


@contextmanager
def answers(service: str, **about: object) -> Iterator[None]:
    """Turn what a service, or the way to it, does to a call into an error of ours; ``about`` goes along.

    Raises ``Passing`` (AWS_UNAVAILABLE) when it cannot be reached or will answer later, ``Refused``
    (AWS_NOT_CONFIGURED) when nothing could be sent, ``Refused`` (AWS_REFUSED) for every other answer that
    is not the one wanted.
    """
    from botocore import exceptions  # noqa: PLC0415 - with boto3

    try:
        yield
    except exceptions.ClientError as error:
        raise _refused(error.response, {"service": service, **about}) from error
    except (exceptions.ConnectionError, exceptions.HTTPClientError) as error:
        endpoint = error.kwargs.get("endpoint_url")
        raise Passing(
            Code.AWS_UNAVAILABLE, cause="unreachable", service=service, endpoint=endpoint, **about
        ) from error
    except exceptions.BotoCoreError as error:
        cause = {
            exceptions.NoCredentialsError: "no-credentials",
            exceptions.NoRegionError: "no-region",
        }.get(type(error))
        raise Refused(
            Code.AWS_NOT_CONFIGURED, cause=cause, service=service, detail=_detail(error), **about
        ) from error


def _refused(response: Mapping[str, Any], about: Mapping[str, object]) -> Passing | Refused:
    said = response.get("Error", {})
    code = str(said.get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in LATER or status >= SERVER_FAULT:
        return Passing(Code.AWS_UNAVAILABLE, error=code, **about)
    cause = None
    if code in {"AccessDenied", "AccessDeniedException"}:
        cause = "denied"
    elif code == "ResourceNotFoundException":
        cause = "not-found"
    return Refused(
        Code.AWS_REFUSED, cause=cause, error=code, detail=_detail(said.get("Message", "")), **about
    )


def _detail(said: object) -> str:
    return " ".join(str(said).split())[:DETAIL_MAX_CHARS]
