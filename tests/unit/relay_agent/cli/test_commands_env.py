"""Facts about `relay-agent env`."""

import pytest

from relay_agent.cli import main


def test_it_prints_the_rank_and_the_port(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """The lines name the row of launchers that decides, and the port that follows from the rank."""
    for name, text in {"RELAY_RANK": "3", "RELAY_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, text)
    assert 0 == main(["env", "--port", "6000"])
    out = capfd.readouterr().out
    assert "RELAY_RANK" in out
    assert "6003" in out


def test_an_invalid_port_is_a_usage_error(capfd: pytest.CaptureFixture[str]):
    """It is refused with the sentence that every program has for it."""
    with pytest.raises(SystemExit) as ended:
        main(["env", "--port", "70000"])
    assert 2 == ended.value.code
    assert "argument --port: invalid port: '70000'. hint: use a number from 1 to 65535" in capfd.readouterr().err
