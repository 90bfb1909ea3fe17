"""Definitions shared by the commands."""

from __future__ import annotations

import argparse

__all__ = ["PROGRAM", "Commands", "explain"]

PROGRAM = "relay-agent"

Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def explain(arguments: argparse.Namespace) -> int:
    """Run `--explain-auth`: print which credentials would be used, and return the exit status."""
    from relay_core.net.relay_tls import client_tls
    from relay_core.program.explain import explain_auth

    return explain_auth(PROGRAM, arguments, side="agent", tls=client_tls(arguments.ca_file))
