"""The rules of CloudWatch's embedded metric format, written from its published specification."""

from __future__ import annotations

import json
from typing import Any

METRICS_MAX = 100
VALUES_MAX = 100
DIMENSIONS_MAX = 30
NAME_MAX = 1024
DIMENSION_VALUE_MAX = 1024
BLOB_MAX_BYTES = 1024 * 1024
UNITS = frozenset(
    {
        *("Seconds", "Microseconds", "Milliseconds", "Percent", "Count", "None"),
        *("Bytes", "Kilobytes", "Megabytes", "Gigabytes", "Terabytes"),
        *("Bits", "Kilobits", "Megabits", "Gigabits", "Terabits"),
        *("Bytes/Second", "Kilobytes/Second", "Megabytes/Second", "Gigabytes/Second"),
        *("Terabytes/Second", "Bits/Second", "Kilobits/Second", "Megabits/Second"),
        *("Gigabits/Second", "Terabits/Second", "Count/Second"),
    }
)


def problems(line: str) -> list[str]:
    """Return what is wrong with one line as an object of the format; nothing for one that is right."""
    root = json.loads(line)
    if not isinstance(root, dict) or not isinstance(root.get("_aws"), dict):
        return ["the root is no object with a member _aws"]
    found = [] if len(line.encode()) <= BLOB_MAX_BYTES else ["the object is too large"]
    about, timestamp = root["_aws"], root["_aws"].get("Timestamp")
    if not isinstance(timestamp, int) or isinstance(timestamp, bool) or timestamp < 0:
        found.append("Timestamp is not a number of milliseconds")
    directives = about.get("CloudWatchMetrics")
    if not isinstance(directives, list) or not directives:
        return [*found, "there are no directives"]
    for directive in directives:
        found += _directive(root, directive)
    return found


def _directive(root: dict[str, Any], directive: dict[str, Any]) -> list[str]:
    found = []
    namespace = directive.get("Namespace")
    if not isinstance(namespace, str) or not 0 < len(namespace) <= NAME_MAX:
        found.append("Namespace is no text of 1 to 1024 characters")
    sets, metrics = directive.get("Dimensions"), directive.get("Metrics")
    if not isinstance(sets, list) or not sets or not isinstance(metrics, list) or not metrics:
        return [*found, "Dimensions or Metrics are missing"]
    for names in sets:
        found += _dimensions(root, names)
    if len(metrics) > METRICS_MAX:
        found.append("there are too many metrics")
    for metric in metrics:
        found += _metric(root, metric)
    return found


def _dimensions(root: dict[str, Any], names: list[str]) -> list[str]:
    found = [] if len(names) <= DIMENSIONS_MAX else ["there are too many dimensions"]
    for name in names:
        value = root.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= DIMENSION_VALUE_MAX:
            found.append(f"the dimension {name} has no text at the root")
    return found


def _metric(root: dict[str, Any], metric: dict[str, Any]) -> list[str]:
    found, name = [], metric.get("Name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX:
        return ["a metric has no name"]
    if metric.get("Unit", "None") not in UNITS:
        found.append(f"{name} has a unit that is none")
    if metric.get("StorageResolution", 60) not in (1, 60):
        found.append(f"{name} has a resolution that is none")
    value = root.get(name)
    values = value if isinstance(value, list) else [value]
    if len(values) > VALUES_MAX:
        found.append(f"{name} has too many values")
    if not values or not all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in values
    ):
        found.append(f"{name} has no numbers at the root")
    return found
