"""The settings of a debug run, each different from its default, that every way to give them is compared with."""

from relay_agent.settings.model import DebugSettings, parse_ranks
from relay_core.access_settings import AccessSettings

ALL_SET = DebugSettings(
    AccessSettings(hc="myhc"),
    port=6000,
    ranks=parse_ranks("0,3-5"),
    wait=600.0,
    abort_on_timeout=True,
    on_crash=True,
    hold=7200.0,
    timeouts=3600.0,
    forwards=(6006, 8888),
    follow_children=True,
    values=False,
)
