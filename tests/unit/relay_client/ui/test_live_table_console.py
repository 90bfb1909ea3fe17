"""Facts about the terminal as rich draws on it."""

import sys

import pytest
from rich.text import Text

from relay_client.ui.live_table import rich_console


@pytest.mark.parametrize(("variables", "has_codes"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color(variables: dict[str, str], has_codes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a value for NO_COLOR, a terminal shows neither colours nor bold text."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    console = rich_console()
    assert console is not None
    with console.capture() as captured:
        console.print(Text("node", "bold red"))
    assert has_codes == ("\x1b" in captured.get())


def test_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """If rich is not installed, `rich_console` returns None."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert rich_console() is None
