"""What the programs print about their access to a relay: for `--explain-auth`, and for the command `doctor`."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Coroutine
from typing import Any

from relay_core.access_settings import Side
from relay_core.auth.find_access import Search, explain_access
from relay_core.diagnosis.checks import Examination, as_json, as_text
from relay_core.errors import ConfigurationError
from relay_core.net.relay_tls import client_tls
from relay_core.program.console import log_errors_only, print_error
from relay_core.program.options import access_settings


def explain_auth(program: str, arguments: argparse.Namespace, *, side: Side) -> int:
    """Print all credential sources and the one in use; return the exit status: 0, or 3 if none is usable."""
    settings = access_settings(arguments)
    search = Search(settings, side=side, tls=client_tls(settings.ca_file))
    lines, error = asyncio.run(explain_access(search))
    print(*lines, sep="\n")  # noqa: T201 - the requested output
    if error is None:
        return 0
    print_error(program, error)
    return ConfigurationError.exit_code


def run_checks(arguments: argparse.Namespace, checks: Coroutine[Any, Any, Examination]) -> int:
    """Run the checks of `doctor`, print their results, as JSON with `--json`, and return the exit status."""
    if not arguments.verbose:
        log_errors_only()
    found = asyncio.run(checks)
    shown = json.dumps(as_json(found.results, found.exit_code), indent=2) if arguments.json else as_text(found.results)
    print(shown)  # noqa: T201 - the requested output
    return found.exit_code
