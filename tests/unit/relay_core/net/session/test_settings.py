"""Facts about the timers and the limit on sessions that the environment sets."""

import pytest

from relay_core.errors import ConfigurationError
from relay_core.net.session.settings import keep_seconds, tunnel_settings


def test_defaults() -> None:
    """Without variables the tunnel's own timers hold, and the grace that the side asks for."""
    settings = tunnel_settings({}, grace=7.0)
    assert (10.0, 25.0, 7.0) == (settings.ping_after, settings.dead_after, settings.grace)


def test_variables() -> None:
    """Each timer has its variable."""
    settings = tunnel_settings({"RELAY_PING_AFTER": "0.5", "RELAY_DEAD_AFTER": "2", "RELAY_KEEP": "60"}, grace=7.0)
    assert (0.5, 2.0, 60.0) == (settings.ping_after, settings.dead_after, settings.grace)
    assert keep_seconds({"RELAY_KEEP": "60"}, default=7.0) == 60.0


def test_durations_with_units() -> None:
    """A timer may be written with a unit, and an empty variable counts as absent."""
    settings = tunnel_settings({"RELAY_DEAD_AFTER": "1m", "RELAY_KEEP": "2h", "RELAY_PING_AFTER": " "}, grace=7.0)
    assert (10.0, 60.0, 7200.0) == (settings.ping_after, settings.dead_after, settings.grace)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "86401"])
@pytest.mark.parametrize("name", ["RELAY_PING_AFTER", "RELAY_DEAD_AFTER", "RELAY_KEEP"])
def test_nonsense_is_refused(name: str, text: str) -> None:
    """What is not a duration of at most a day is refused with the variable's name."""
    with pytest.raises(ConfigurationError, match=f"{name}: invalid duration: '{text}'"):
        tunnel_settings({name: text}, grace=7.0)


def test_an_answer_needs_time() -> None:
    """The time until a connection is dead must be longer than the time until a ping."""
    with pytest.raises(ConfigurationError, match="must be longer than RELAY_PING_AFTER"):
        tunnel_settings({"RELAY_DEAD_AFTER": "5"}, grace=7.0)


def test_limit_on_sessions() -> None:
    """The agent's number of sessions has a variable; without it, the default applies."""
    assert [32, 32, 200] == [
        tunnel_settings({"RELAY_MAX_SESSIONS": text}, grace=7.0).max_sessions for text in ("", " ", "200")
    ]


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5", "10000", "\u00b2"])
def test_an_invalid_limit_on_sessions(text: str) -> None:
    """What is not a number from 1 to 9999 is refused with the variable's name."""
    with pytest.raises(ConfigurationError, match=f"RELAY_MAX_SESSIONS: invalid number of sessions: '{text}'"):
        tunnel_settings({"RELAY_MAX_SESSIONS": text}, grace=7.0)
