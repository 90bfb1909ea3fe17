"""Writes az_args.json: the options that the real `az` knows, read from its own help.

    python tests/support/azure/az_shim/argtable.py path/to/az > tests/support/azure/az_shim/az_args.json

Run it by hand when infra/ or README.md starts to use another command, or to move to a newer azure-cli; the tests need
no `az`.
An option maps to whether help marks it required. Commands that accept --ids or --id mark nothing as required.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

COMMANDS = [
    "account get-access-token",
    "account set",
    "account show",
    "ad signed-in-user show",
    "deployment group create",
    "group create",
    "group exists",
    "group show",
    "keyvault create",
    "keyvault secret delete",
    "keyvault secret recover",
    "keyvault secret set",
    "keyvault secret show",
    "keyvault secret show-deleted",
    "keyvault set-policy",
    "keyvault show",
    "login",
    "provider register",
    "relay hyco authorization-rule create",
    "relay hyco authorization-rule keys list",
    "relay hyco authorization-rule keys renew",
    "relay hyco authorization-rule show",
    "relay hyco create",
    "relay hyco delete",
    "relay hyco list",
    "relay hyco show",
    "relay namespace create",
    "relay namespace delete",
    "relay namespace exists",
    "relay namespace show",
    "resource show",
    "role assignment create",
    "role assignment list",
]
OPTION_LINE = re.compile(r"^    (--[a-z][^:\[]*?)\s*(\[Required\])?\s*:")


def options_of(az: str, command: str) -> dict[str, bool]:
    """Return each option of `command`, with its aliases, and whether it is required."""
    text = subprocess.run([az, *command.split(), "--help"], check=True, capture_output=True, text=True).stdout
    found = [OPTION_LINE.match(line) for line in text.splitlines()]
    return {match[1]: bool(match[2]) for match in found if match}


def main() -> None:
    az = sys.argv[1]
    version = json.loads(subprocess.run([az, "version"], check=True, capture_output=True, text=True).stdout)
    table = {
        "source": f"azure-cli {version['azure-cli']}: az COMMAND --help",
        "commands": {command: options_of(az, command) for command in COMMANDS},
    }
    print(json.dumps(table, indent=2))


if __name__ == "__main__":
    main()
