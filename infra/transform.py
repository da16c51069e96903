"""Transforms the template as the platform does on deployment, offline: ``python infra/transform.py OUT``.

What checks a template (cfn-lint, checkov, tests) finds more in the result than in what it was made from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from boto3.session import Session
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

TEMPLATE = Path(__file__).parent / "template.yaml"
# The transformation asks in which partition it is; what comes out names none.
REGION = "eu-central-1"


def template() -> dict[str, Any]:
    """Return the template with its short forms of functions spelled out."""
    loaded: dict[str, Any] = yaml_parse(TEMPLATE.read_text())
    return loaded


def transformed() -> dict[str, Any]:
    """Return the template as plain CloudFormation; raises what samtranslator raises for a wrong one."""
    packaged = template()
    # The command that deploys uploads the package and puts the place of it here.
    packaged["Globals"]["Function"]["CodeUri"] = "s3://packages/tallystick.zip"
    translator = Translator({}, Parser(), boto_session=Session(region_name=REGION))
    made: dict[str, Any] = translator.translate(packaged, {})
    return made


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(transformed(), indent=1) + "\n")
