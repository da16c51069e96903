"""The template for AWS as values: its resources, with the short forms of functions spelled out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import yaml

from tests.deploy.image import ROOT

TEMPLATE = ROOT / "infra" / "template.yaml"
Json = dict[str, Any]


class Loader(yaml.SafeLoader):
    """Reads ``!Ref x`` as ``{"Ref": "x"}``, ``!If […]`` as ``{"Fn::If": […]}`` and so on."""


def _spelled(loader: Loader, suffix: str, node: yaml.Node) -> Json:
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt":
        value = value.split(".", 1)
    return {suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}": value}


Loader.add_multi_constructor("!", _spelled)


@cache
def template() -> Json:
    """Return the whole template."""
    loaded: Json = yaml.load(TEMPLATE.read_text(), Loader)  # noqa: S506 - it is a safe loader
    return loaded


def resources(sort: str) -> dict[str, Json]:
    """Return the properties of every resource of a type, by name."""
    return {
        name: each["Properties"]
        for name, each in template()["Resources"].items()
        if each["Type"] == sort
    }


def functions() -> dict[str, Json]:
    """Return the functions with what holds for all of them."""
    shared = template()["Globals"]["Function"]
    return {name: {**shared, **own} for name, own in resources("AWS::Serverless::Function").items()}


def environment() -> Json:
    """Return the variables of every function."""
    found: Json = template()["Globals"]["Function"]["Environment"]["Variables"]
    return found


def defaults() -> Json:
    """Return the parameters that have a default, by name."""
    return {
        name: each["Default"]
        for name, each in template()["Parameters"].items()
        if "Default" in each
    }


def taken(parameter: str) -> Callable[[str], object]:
    """Return what tells whether a parameter takes a value."""
    return re.compile(template()["Parameters"][parameter]["AllowedPattern"]).fullmatch


def statements(document: Json) -> list[Json]:
    """Return the statements of a policy, those that depend on a condition too."""
    found = []
    for each in document["Statement"]:
        if "Fn::If" in each:
            found += [branch for branch in each["Fn::If"][1:] if branch != NOTHING]
        else:
            found.append(each)
    return found


NOTHING = {"Ref": "AWS::NoValue"}


def deployed(**given: str | int) -> dict[str, Json]:
    """Return the resources that a deployment with these parameters has: no conditions, no ``Fn::If``."""
    made = template()
    values = defaults() | given
    return {
        name: _chosen(each, values)
        for name, each in made["Resources"].items()
        if "Condition" not in each or _holds({"Condition": each["Condition"]}, values)
    }


def settings(**given: str | int) -> dict[str, str]:
    """Return the settings that the functions of a deployment with these parameters have, by name."""
    values = defaults() | given
    chosen = _chosen(environment(), values)
    return {
        name: str(values[value["Ref"]] if isinstance(value, dict) else value)
        for name, value in chosen.items()
        if name.startswith("TALLYSTICK_")
    }


def refusals(**given: str | int) -> list[str]:
    """Return what the rules have against a deployment with these parameters, in their words."""
    values = defaults() | given
    return [
        assertion["AssertDescription"]
        for rule in template()["Rules"].values()
        if _holds(rule.get("RuleCondition", {"Fn::And": []}), values)
        for assertion in rule["Assertions"]
        if not _holds(assertion["Assert"], values)
    ]


def _holds(condition: Json, values: Json) -> bool:
    match condition:
        case {"Condition": name}:
            return _holds(template()["Conditions"][name], values)
        case {"Fn::Not": [inner]}:
            return not _holds(inner, values)
        case {"Fn::And": inner}:
            return all(_holds(each, values) for each in inner)
        case {"Fn::Or": inner}:
            return any(_holds(each, values) for each in inner)
        case {"Fn::Equals": [{"Ref": name}, other]}:
            return bool(values[name] == other)
    raise AssertionError(condition)


def _chosen(value: Any, values: Json) -> Any:  # noqa: ANN401 - JSON
    """Return a value with every ``Fn::If`` in it decided, and what is left out by one left out."""
    match value:
        case {"Fn::If": [name, yes, no]}:
            return _chosen(yes if _holds({"Condition": name}, values) else no, values)
        case dict():
            inside = {key: _chosen(each, values) for key, each in value.items()}
            return {key: each for key, each in inside.items() if each != NOTHING}
        case list():
            return [made for each in value if (made := _chosen(each, values)) != NOTHING]
    return value


def may(resources: dict[str, Json], role: str) -> list[Json]:
    """Return every statement of a role in a deployment: of the policies that it has, then its own."""
    properties = resources[role]["Properties"]
    attached = [resources[each["Ref"]]["Properties"] for each in properties["ManagedPolicyArns"]]
    documents = [each["PolicyDocument"] for each in [*attached, *properties["Policies"]]]
    return [each for document in documents for each in document["Statement"]]


def references(value: object) -> set[str]:
    """Return the names of everything that a value refers to, however deep."""
    return {name for part in parts(value) for name in _referred(part)}


def parts(value: object) -> Iterator[object]:
    """Return a value and everything inside it."""
    yield value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inside:
        yield from parts(each)


def _referred(part: object) -> list[str]:
    match part:
        case {"Ref": str(name)}:
            return [name]
        case {"Fn::GetAtt": [str(name), _]}:
            return [name]
        case {"Fn::Sub": str(text)} | {"Fn::Sub": [str(text), _]}:
            return re.findall(r"\$\{([A-Za-z0-9]+)[}.]", text)
    return []


def alarmed() -> dict[str, list[Json]]:
    """Return the metrics each alarm looks at: namespace, name and dimensions."""
    found: dict[str, list[Json]] = {}
    for name, alarm in resources("AWS::CloudWatch::Alarm").items():
        if "MetricName" in alarm:
            found[name] = [alarm]
        else:
            each = [metric["MetricStat"] for metric in alarm["Metrics"] if "MetricStat" in metric]
            found[name] = [metric["Metric"] for metric in each]
    return found


def dashboard() -> list[Json]:
    """Return the properties of every widget of the dashboard."""
    (made,) = resources("AWS::CloudWatch::Dashboard").values()
    body: Json = json.loads(made["DashboardBody"]["Fn::Sub"][0])
    return [widget["properties"] for widget in body["widgets"]]
