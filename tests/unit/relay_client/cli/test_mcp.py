"""Facts about starting `relay-client mcp`."""

import sys

import pytest

from relay_client.cli import make_parser
from relay_core.errors import ConfigurationError


def test_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    """Without the package mcp, the command names the extra that installs it."""
    monkeypatch.setitem(sys.modules, "mcp", None)  # as the import system remembers that a package is missing
    monkeypatch.delitem(sys.modules, "relay_client.mcp.server", raising=False)
    monkeypatch.delitem(sys.modules, "mcp.server", raising=False)
    arguments = make_parser().parse_args(["mcp"])
    with pytest.raises(ConfigurationError, match="the mcp package is not installed") as caught:
        arguments.command(arguments)
    assert "run pip install 'mcp>=2.3' in relay-client's environment" == caught.value.hint
