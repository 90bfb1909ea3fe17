"""Facts about the settings of the monitor in a registration."""

from pathlib import Path
from typing import Any

import pytest

from relay_agent.monitor.readings import MonitorSettings


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"metrics": ["127.0.0.1", 9400]}, None),
        ({"monitor": None, "outputs": "logs"}, None),
        ({"monitor": 5.0, "outputs": ""}, MonitorSettings(5.0, Path("outputs"), None)),
        (
            {"monitor": 5.0, "outputs": "logs", "metrics": ["127.0.0.1", 9400]},
            MonitorSettings(5.0, Path("logs"), ("127.0.0.1", 9400)),
        ),
    ],
)
def test_settings_in_a_registration(fields: dict[str, Any], expected: MonitorSettings | None) -> None:
    """A process requests the monitor by its interval; all other fields are optional."""
    assert expected == MonitorSettings.of({"register": {"port": 5678}, **fields})
