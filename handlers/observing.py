"""What an invocation on the platform leaves behind: one log line, and metrics in CloudWatch's own format."""

from __future__ import annotations

import itertools
import logging
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from handlers import log
from shared import metrics
from shared.errors import Code, Refused

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger
    from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
        AmazonCloudWatchEMFProvider,
    )

    from shared.tick import Report

NAMESPACE = "Tallystick"
# What a schedule says of its event, and longer than any of it is.
SAID = ("scheduled_time", "execution_id", "attempt_number")
SAID_MAX_CHARS = 64
# The first invocation of a process is the one that pays for its start.
invocations = itertools.count()


def require() -> None:
    """Load what the two need, before any work; raises ``Refused`` where the extra ``aws`` is missing."""
    try:
        _logger()
    except ImportError as error:
        raise Refused(Code.AWS_EXTRA_MISSING) from error


def observed(report: Report, event: object, context: object) -> None:
    """Write the line of a tick to standard error and its metrics to standard output."""
    keys = {
        **said(event),
        "cold_start": next(invocations) == 0,
        "function_name": getattr(context, "function_name", None),
        "function_memory_size": getattr(context, "memory_limit_in_mb", None),
        "function_arn": getattr(context, "invoked_function_arn", None),
        "function_request_id": getattr(context, "aws_request_id", None),
    }
    logger = _logger()
    loud = {logging.ERROR: logger.error, logging.WARNING: logger.warning}
    write = loud.get(log.level(report), logger.info)
    write(log.MESSAGE, extra={**log.fields(report), **keys})
    for dimensions, group in metrics.grouped(metrics.measured(report)).items():
        blob = _blob()
        for name, value in dimensions:
            blob.add_dimension(name, value)
        for metric in group:
            blob.add_metric(metric.name, str(metric.unit), metric.value)
        blob.flush_metrics()


def said(event: object) -> dict[str, str | None]:
    """Return what a schedule says of an event; anything else in its place is nothing."""
    members = event if isinstance(event, dict) else {}
    texts = {name: members.get(name) for name in SAID}
    return {
        name: text if isinstance(text, str) and len(text) <= SAID_MAX_CHARS else None
        for name, text in texts.items()
    }


def _blob() -> AmazonCloudWatchEMFProvider:
    """Return an empty EMF object; POWERTOOLS_METRICS_NAMESPACE and POWERTOOLS_SERVICE_NAME go before ours."""
    from aws_lambda_powertools.metrics import EphemeralMetrics

    made = EphemeralMetrics()
    made.namespace = made.namespace or NAMESPACE
    made.service = made.service or log.SERVICE
    return made


@cache
def _logger() -> Logger:
    from aws_lambda_powertools import Logger

    # Under our own name, so that the lines of everything below it take the same form; and told once: the
    # platform's own handler sits at the root.
    made = Logger(
        name=log.SERVICE,
        service=_blob().service,
        logger_handler=StandardError(),
        use_rfc3339=True,
        utc=True,
    )
    logging.getLogger(log.SERVICE).propagate = False
    return made


class StandardError(logging.StreamHandler[Any]):
    """Writes to whatever is standard error at that moment."""

    def __init__(self) -> None:
        """Begin without a stream of its own."""
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:  # noqa: ANN401 - as the class above declares it
        """Return standard error."""
        return sys.stderr
