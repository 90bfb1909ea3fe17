"""Facts about the hints of errors in a job's log."""

import pytest

from relay_agent.settings.environment import hint_for_job


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("use --hc myhc, or a connection string", "use --debug-relay-connection-name myhc, or a connection string"),
        ("add --hc NAME", "add --debug-relay-connection-name NAME"),
        ("set A, or use --connection-string-file or RELAY_CONNECTION_STRING_FILE with a file that has mode 0600",
         "set A, or use RELAY_CONNECTION_STRING_FILE with a file that has mode 0600"),
        ("to use Entra ID, use --namespace", "to use Entra ID, use RELAY_NAMESPACE"),
        ("give the proxy's CA with --ca-file or RELAY_CA_FILE", "give the proxy's CA with RELAY_CA_FILE"),
        ("run: az relay hyco create --namespace-name ns", "run: az relay hyco create --namespace-name ns"),
        ("", ""),
    ],
)  # fmt: skip
def test_hints(hint: str, expected: str) -> None:
    """They name a job's arguments and variables; in a job of `relay-agent run`, the options of that command."""
    assert expected == hint_for_job(hint, {})
    assert hint == hint_for_job(hint, {"RELAY_DEBUG": "wait"})
