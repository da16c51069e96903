"""What an emulator cannot run of the stack, changed; everything else of it is deployed as it is."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

FUNCTION = "AWS::Lambda::Function"
EVENTS = "AWS::Lambda::EventInvokeConfig"
ALARM = "AWS::CloudWatch::Alarm"
# The runtime that starts a program of the package's own, and so the real client of the platform's runtime.
OWN_RUNTIME = "provided.al2023"


def runnable(transformed: Json, root: str | None = None) -> Json:
    """Return a transformed template as the emulator can deploy it; the one given stays as it is.

    With ``root`` the volume is that directory, because nothing can be mounted here.
    """
    resources = {
        name: _resource(resource, root)
        for name, resource in transformed["Resources"].items()
        # The emulator takes no alarm over an expression of metrics, and stops the whole stack for one.
        if not (resource["Type"] == ALARM and "Metrics" in resource["Properties"])
    }
    return transformed | {"Resources": resources}


def mount_paths(transformed: Json) -> set[str]:
    """Return where the functions of a template expect file systems."""
    return {
        mount["LocalMountPath"]
        for resource in transformed["Resources"].values()
        if resource["Type"] == FUNCTION
        for mount in resource["Properties"].get("FileSystemConfigs", ())
    }


def _resource(resource: Json, root: str | None) -> Json:
    if resource["Type"] == FUNCTION:
        return _function(resource, root)
    if resource["Type"] == EVENTS:
        # The emulator knows the rule of an alias, and goes by that of the version behind it.
        return resource | {"Properties": resource["Properties"] | {"Qualifier": "$LATEST"}}
    return resource


def _function(resource: Json, root: str | None) -> Json:
    """Return a function that runs under the platform's own client.

    The emulator has a worker of its own for runtimes of Python, whose errors and context are others. The
    machine stays as it is: the emulator only notes it, and the package is for the one that is here.
    """
    properties = resource["Properties"] | {"Runtime": OWN_RUNTIME}
    if root is not None:
        variables = properties["Environment"]["Variables"] | {"TALLYSTICK_ARCHIVE_ROOT": root}
        properties |= {"Environment": {"Variables": variables}}
    return resource | {"Properties": properties}
