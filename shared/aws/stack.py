"""The resources of a stack, by the names that its template gives them."""

from __future__ import annotations

from dataclasses import dataclass

from shared.aws.client import answers, client
from shared.errors import Code, Refused

FUNCTION = "AWS::Lambda::Function"
ALIAS = "AWS::Lambda::Alias"
# What CloudFormation calls a stack that is not there.
UNKNOWN = "ValidationError"
# Where an ARN has the name of a function.
NAME_PLACE = 6


@dataclass(frozen=True)
class Resource:
    """One resource: its name in the template, its type, and what AWS calls it (a name, an ARN or a URL)."""

    name: str
    kind: str
    identity: str


def resources(stack: str) -> tuple[Resource, ...]:
    """Return the resources of a stack, by name or ARN, in the order of their names.

    Raises ``Refused`` (STACK_UNKNOWN) where there is none of that name, and as ``answers`` does.
    """
    service = client("cloudformation")
    found = []
    try:
        with answers("cloudformation", resource=stack):
            for page in service.get_paginator("list_stack_resources").paginate(StackName=stack):
                found += page["StackResourceSummaries"]
    except Refused as refused:
        if refused.params.get("error") == UNKNOWN:
            raise Refused(Code.STACK_UNKNOWN, stack=stack) from refused
        raise
    made = (
        # Not there yet, or not any more: such a resource has no identity.
        Resource(each["LogicalResourceId"], each["ResourceType"], each["PhysicalResourceId"])
        for each in found
        if each.get("PhysicalResourceId")
    )
    return tuple(sorted(made, key=lambda each: each.name))


def functions(found: tuple[Resource, ...]) -> dict[str, str]:
    """Return by name, in lower case, what to invoke each function by: its alias where it has one."""
    aliases = {function_name(each.identity): each.identity for each in found if each.kind == ALIAS}
    return {
        each.name.lower(): aliases.get(each.identity, each.identity)
        for each in found
        if each.kind == FUNCTION
    }


def function_name(arn: str) -> str:
    """Return the name of a function out of its ARN, with or without an alias; any other text as it is."""
    parts = arn.split(":")
    return parts[NAME_PLACE] if len(parts) > NAME_PLACE else arn


def function(stack: str | None, name: str) -> str:
    """Return what to invoke a function by: one of a stack by its name there, else ``name`` as it is.

    Raises ``Refused`` (FUNCTION_UNKNOWN) where the stack has no such function, and as ``resources`` does.
    """
    if stack is None or ":" in name:
        return name
    known = functions(resources(stack))
    if name not in known:
        raise Refused(Code.FUNCTION_UNKNOWN, function=name, stack=stack, known=sorted(known))
    return known[name]
