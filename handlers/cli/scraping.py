"""Metrics of the local loop in the text format of Prometheus, for somebody to come and scrape."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared import metrics
from shared.errors import Code, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric as Family

    from shared.tick import Report


class Sums:
    """What the ticks of this process came to, as families of the text format."""

    def __init__(self) -> None:
        """Begin at zero, where there is but one sum."""
        self._totals: metrics.Totals = {
            (each.name, ()): 0.0 for each in metrics.MEASURES if not (each.dimensions or each.gauge)
        }

    def told(self, report: Report) -> None:
        """Add one tick; who scrapes meanwhile sees all of it or nothing."""
        self._totals = metrics.added(self._totals, metrics.measured(report))

    def collect(self) -> Iterator[Family]:
        """Return every measure with its values so far."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        totals = self._totals
        for measure in metrics.MEASURES:
            kind = GaugeMetricFamily if measure.gauge else CounterMetricFamily
            family = kind(measure.text_name, measure.meaning, labels=measure.dimensions)
            for (name, values), total in totals.items():
                if name == measure.name:
                    family.add_metric(values, total)
            yield family


@contextmanager
def served(port: int, address: str) -> Iterator[Callable[[Report], None]]:
    """Serve what the yielded function is told, until the block ends.

    Raises ``Refused`` without the extra ``metrics``, or when the address cannot be listened on.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise Refused(Code.METRICS_EXTRA_MISSING) from error
    sums, registry = Sums(), CollectorRegistry()
    registry.register(sums)
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        cause = errno.errorcode.get(error.errno or 0, "other")
        raise Refused(Code.METRICS_NOT_SERVED, cause=cause, address=address, port=port) from error
    try:
        yield sums.told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
