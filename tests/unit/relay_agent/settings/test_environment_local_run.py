"""Facts about runs that are only monitored, without a relay."""

import pytest

from relay_agent.settings.environment import is_local, run_name
from relay_agent.settings.model import DebugSettings
from relay_agent.settings.ranks import identify
from relay_core.access_settings import AccessSettings


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"KEY_VAULT_URL": "https://v.vault.azure.net", "RELAY_CA_FILE": "ca.pem", "RELAY_TUNNEL_KEY": "k"},
        {"RELAY_CONNECTION_STRING": ""},
    ],
)
def test_a_monitor_without_a_relay(environ: dict[str, str]) -> None:
    """What selects no relay, such as a vault or a certificate, does not count."""
    assert is_local(DebugSettings(monitor=10.0), environ)
    assert is_local(DebugSettings(AccessSettings(key_vault="v", tunnel_key_file="k"), monitor=10.0), environ)


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        (DebugSettings(), {}),
        (DebugSettings(monitor=10.0, abort_on_timeout=True), {}),
        (DebugSettings(AccessSettings(hc="myhc"), monitor=10.0), {}),
        (DebugSettings(AccessSettings(namespace="ns"), monitor=10.0), {}),
        (DebugSettings(AccessSettings(connection_string_secret="s"), monitor=10.0), {}),
        (DebugSettings(monitor=10.0), {"RELAY_CONNECTION_STRING": "Endpoint=sb://x/"}),
        (DebugSettings(monitor=10.0), {"RELAY_CONNECTION_STRING_FILE": "cs"}),
        (DebugSettings(monitor=10.0), {"RELAY_NAMESPACE": "ns"}),
        (DebugSettings(monitor=10.0), {"AZRELAY_CONNECTION_NAME": "myhc"}),
    ],
)
def test_other_runs(settings: DebugSettings, environ: dict[str, str]) -> None:
    """A run without a monitor, one that needs a debugger, and one whose relay is set at least in part are not local."""
    assert not is_local(settings, environ)


TORCHRUN = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "localhost"}


def test_ranks_of_a_run_have_its_name() -> None:
    """Two torchrun jobs at the same time have different names, and the ranks of one job the same."""

    def name(rank: str, port: str) -> str:
        environ = {**TORCHRUN, "RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port}
        return run_name(identify(environ), environ, pid=100 + int(rank), directory="/")

    assert name("0", "29500") == name("1", "29500") != name("0", "29501")


def test_processes_without_a_launcher() -> None:
    """Each is a run of its own."""
    assert run_name(identify({}), {}, pid=100, directory="/") != run_name(identify({}), {}, pid=101, directory="/")
