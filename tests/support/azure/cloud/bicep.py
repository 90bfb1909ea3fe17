"""A stand-in for the Bicep compiler, which cannot be downloaded everywhere; `az deployment` calls it.

It translates the parameters of a file and nothing else, so what it makes is a template without resources; what
main.bicep describes is in deployment.py. `az` takes it from the PATH if AZURE_BICEP_USE_BINARY_FROM_PATH is set.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

VERSION = "Bicep CLI version 0.38.33 (6bb5d5f859)"
ENVIRONMENT = {"AZURE_BICEP_USE_BINARY_FROM_PATH": "true"}
PARAMETER = re.compile(r"((?:^@.*\n)*)^param (\w+) (\S+)(?: = (.*))?$", re.MULTILINE)
SCRIPT = """\
#!{python}
import json, sys
sys.path.insert(0, {root!r})
from tests.support.azure.cloud.bicep import VERSION, template
print(VERSION if sys.argv[1:] == ["--version"] else json.dumps(template(sys.argv[-1])))
"""


def install(folder: Path) -> None:
    """Put `bicep` into a folder."""
    path = folder / "bicep"
    path.write_text(SCRIPT.format(python=sys.executable, root=str(Path(__file__).parents[4])))
    path.chmod(0o755)


def template(file: str) -> dict[str, object]:
    """Return an ARM template with the parameters of a Bicep file; one with a default is optional."""
    parameters = {}
    for decorators, name, written, default in PARAMETER.findall(Path(file).read_text()):
        kind = "array" if written.endswith("[]") else written
        parameters[name] = {"type": f"secure{kind.capitalize()}" if "@secure()" in decorators else kind}
        if default:
            parameters[name]["defaultValue"] = default
    schema = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
    return {"$schema": schema, "contentVersion": "1.0.0.0", "parameters": parameters, "resources": []}
