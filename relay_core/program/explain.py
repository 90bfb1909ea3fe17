"""The option `--explain-auth` of the programs that connect to a relay."""

from __future__ import annotations

import argparse
import asyncio
import ssl

from relay_core.access_settings import Side
from relay_core.auth.find_access import Search, explain_access
from relay_core.errors import ConfigurationError
from relay_core.program.console import print_error
from relay_core.program.options import access_settings


def explain_auth(program: str, arguments: argparse.Namespace, *, side: Side, tls: ssl.SSLContext) -> int:
    """Print all credential sources and the one in use; return the exit status: 0, or 3 if none is usable."""
    lines, error = asyncio.run(explain_access(Search(access_settings(arguments), side=side, tls=tls)))
    print(*lines, sep="\n")  # noqa: T201 - the requested output
    if error is None:
        return 0
    print_error(program, error)
    return ConfigurationError.exit_code
