"""Check of `.vscode/launch.json`: configurations that attach to the local ports, and their type."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from relay_client.editor_setup.jsonc.parser import parse
from relay_client.ui.text import format_ports
from relay_core.diagnosis.checks import Skipped
from relay_core.errors import ConfigurationError

__all__ = ["check_launch_json"]

FILE = Path(".vscode", "launch.json")
HINT = "run: relay-client init vscode --write"


def check_launch_json(folder: Path, ports: Collection[int]) -> str:
    """Return which ports the configurations in a folder attach to.

    Args:
        folder: The folder that VS Code opens.
        ports: Local ports that must have a configuration.

    Raises:
        Skipped: the folder has no launch.json.
        ConfigurationError: the file is invalid, has a configuration of a deprecated type, or lacks a port.
    """
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Skipped(f"no {FILE} in {folder}") from None
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"cannot read {FILE}: {type(error).__name__}") from None
    attaching = [each for each in _configurations(text) if each.get("request") == "attach"]
    if old := [str(each.get("name")) for each in attaching if each.get("type") == "python"]:
        raise ConfigurationError(
            f"{FILE}: '{old[0]}' has the deprecated type 'python'", hint=f"use 'debugpy', or {HINT}"
        )
    found = {port for each in attaching if (port := _port(each)) is not None}
    if missing := set(ports) - found:
        raise ConfigurationError(f"{FILE}: no configuration attaches to {format_ports(missing)}", hint=HINT)
    if not found:
        raise ConfigurationError(f"{FILE}: no configuration attaches to a port", hint=HINT)
    return f"{FILE} attaches to {format_ports(found)}"


def _configurations(text: str) -> list[dict[str, Any]]:
    root = parse(text, str(FILE))
    data = root.data if root is not None else None
    found = data.get("configurations") if isinstance(data, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _port(configuration: dict[str, Any]) -> int | None:
    """Return the port in `connect` or `listen`; debugpy accepts it as a number or as text."""
    for name in ("connect", "listen"):
        place = configuration.get(name)
        port = place.get("port") if isinstance(place, dict) else None
        if isinstance(port, (int, str)) and str(port).isdecimal():
            return int(port)
    return None
