"""The tests mirror the sources: `relay_core/hyco/sas.py` is tested by `tests/unit/relay_core/hyco/test_sas.py`.

A test file about one aspect adds it to the name: `test_session_breaches.py` is about `session.py`. A module of
several subjects may have a test file for each, and none of its own name.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("relay_core", "relay_agent", "relay_client", "relay_server")

COVERED_BY = {
    # Data and protocol classes: what they mean shows in those that use them.
    "tests/unit/relay_core/tunnel/test_session.py": "relay_core/tunnel/ events limits outcomes",
    "tests/unit/relay_core/auth/test_names.py": "relay_core/auth/ key_vault",
    "tests/unit/relay_core/auth/test_find_access.py": "relay_core/program/ explain options",
    "tests/integration/relay_server/test_lifecycle.py": "relay_server/ server",
    "tests/unit/relay_core/layers/test_stack.py": "relay_core/layers/ layer",
    # Drivers around sans-IO cores: real sockets, real peers.
    "tests/unit/relay_core/auth/test_entra.py": "relay_core/auth/ azure_sdk identity on_behalf_of",
    "tests/integration/test_hybrid_http.py": "relay_core/net/hybrid/ http",
    "tests/integration/test_hybrid_connection.py": "relay_core/net/hybrid/ connector listener relay_core/ compat",
    "tests/integration/test_resume.py": "relay_core/net/session/ agent client",
    "tests/unit/relay_agent/trigger/test_gradients.py": "relay_agent/trigger/ steps",
    "tests/integration/test_tunnel_security.py": "relay_core/net/session/ transport",
    "tests/integration/relay_server/test_cli.py": "relay_server/ cli service",
    "tests/integration/relay_server/test_reloading.py": "relay_server/ reloading",
    "tests/integration/relay_server/test_management.py": "relay_server/ management",
    "tests/integration/relay_server/test_http.py": "relay_server/ gateway relay_server/relaying/ http_exchange",
    "tests/integration/relay_server/test_control_channel.py": "relay_server/relaying/ control",
    "tests/integration/relay_server/test_statuses.py": "relay_server/connection/ request_reader",
    # Several parts at once: agent, client and relay in one loop.
    "tests/integration/test_forwarding.py": "relay_client/ports/ forwarder",
    "tests/integration/test_editor_session.py": "relay_client/ports/ waiting_connection",
    "tests/unit/relay_client/job_session/test_session.py": "relay_client/job_session/ translation stepping wire",
    "tests/e2e/test_running_clients.py": "relay_client/cli/ running",
    "tests/integration/test_control.py": "relay_client/control/ client service",
    "tests/integration/test_monitor.py": "relay_agent/monitor/ monitor",
    "tests/integration/test_page.py": "relay_client/page/ server",
    "tests/unit/relay_client/control/test_protocol.py": "relay_client/control/ messages",
    # Whole programs: what an interpreter, debugpy or a terminal does cannot be had in one process.
    "tests/integration/test_run_command.py": (
        "relay_agent/inject/ _relay_debug_programs sitecustomize relay_agent/startup/ register"
    ),
    "tests/unit/relay_agent/debugpy_internals/test_feature.py": "relay_agent/debugpy_internals/ table",
    "tests/unit/relay_agent/test_api.py": "relay_agent/debuggee/ process",
    "tests/unit/relay_agent/node/in_job/test_client.py": "relay_agent/node/in_agent/ server",
    "tests/e2e/test_hang.py": "relay_client/cli/inspection/ hang relay_client/verbs/ hang",
    "tests/e2e/test_demo.py": "relay_client/demo/ environment run walkthrough relay_client/cli/ demo",
    "tests/e2e/test_doctor_commands.py": "relay_client/cli/ doctor",
    "tests/e2e/test_client_commands.py": (
        "relay_client/cli/ attach common forward tensorboard relay_client/verbs/ targets relay_client/ports/ rank_port"
    ),
    "tests/e2e/test_compare_ranks.py": "relay_client/verbs/ values relay_client/compare/ collect",
    "tests/e2e/test_mlflow.py": "relay_agent/node/in_agent/ set_tag",
    "tests/e2e/test_tensorboard_users.py": "relay_client/tensorboard/ checked",
    "tests/integration/test_event_files.py": "relay_client/tensorboard/ server",
    "tests/e2e/test_verbs.py": "relay_client/cli/inspection/ asking relay_client/verbs/ table verb",
    "tests/e2e/test_push.py": "relay_client/cli/ push relay_client/verbs/ push relay_agent/push/ sources",
    "tests/e2e/test_run_and_look.py": (
        "relay_client/cli/ pdb relay_client/cli/inspection/ verb_command relay_client/verbs/ stacks"
    ),
    "tests/unit/relay_agent/agent/test_port_targets.py": "relay_agent/agent/ targets responses",
    "tests/e2e/test_debugpy_traps.py": (
        "relay_agent/debuggee/pydevd_patches/child_plugin/pydevd_plugins/extensions/ pydevd_plugin_relay_agent"
    ),
    # A figure, not a fact.
}
"""Sources without a test file of their own, after the folder they are in, by the test file that states their facts."""

OTHER_NAMES = {
    "tests/unit/relay_agent/debuggee/pydevd_patches/test_install.py": "the package's __init__",
    "tests/unit/relay_client/cli/test_main.py": "the package's __init__",
    "tests/unit/relay_core/agent_api/test_recorded.py": "the wire format of all records, as earlier versions sent them",
    "tests/unit/relay_core/auth/test_names.py": "one grammar of names, read by address and key_vault",
    "tests/unit/relay_core/tunnel/test_windows.py": "the windows; stream and stream_table each do a part",
}
"""Test files that are not named after a source, with the reason."""


def covered() -> dict[str, str]:
    """Return for each exception the test file that covers it."""
    found = {}
    for test, words in COVERED_BY.items():
        folder = ""
        for word in words.split():
            if word.endswith("/"):
                folder = word
            else:
                found[f"{folder}{word}.py"] = test
    return found


def sources() -> Iterator[str]:
    """Yield the files with code of their own."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if not path.name.startswith("__"):
                yield str(path.relative_to(ROOT))


def unit_tests() -> Iterator[str]:
    """Yield the unit tests of the packages."""
    for package in PACKAGES:
        for path in (ROOT / "tests/unit" / package).rglob("test_*.py"):
            yield str(path.relative_to(ROOT))


def expected_test(source: str) -> str:
    path = Path("tests/unit", source)
    return str(path.with_name(f"test_{path.name.lstrip('_')}"))


def has_test(source: str) -> bool:
    """Return whether a source has a test of its name, or tests of its aspects."""
    path = ROOT / expected_test(source)
    return path.exists() or any(path.parent.glob(f"{path.stem}_*.py"))


def has_source(test: str) -> bool:
    """Return whether a test is named after a source, or after a source and an aspect of it."""
    path = Path(test).relative_to("tests/unit")
    words = path.stem.removeprefix("test_").split("_")
    stems = ("_".join(words[:count]) for count in range(1, len(words) + 1))
    return any((ROOT / path.parent / f"{stem}.py").exists() for stem in stems)


def test_every_source_has_its_test() -> None:
    """A module has unit tests of its name, or is listed with the test that covers it."""
    assert [] == sorted(each for each in sources() if not has_test(each) and each not in covered())


def test_every_unit_test_has_its_source() -> None:
    """A unit test is named after its module, or is listed with a reason."""
    assert [] == sorted(each for each in unit_tests() if not has_source(each) and each not in OTHER_NAMES)


def test_the_exceptions_are_needed() -> None:
    """What is listed exists, on both sides, and has no test of its own name."""
    for source, test in covered().items():
        assert (ROOT / source).exists(), source
        assert (ROOT / test).exists(), test
        assert not has_test(source), source
    for test in OTHER_NAMES:
        assert (ROOT / test).exists(), test
        assert not has_source(test), test
