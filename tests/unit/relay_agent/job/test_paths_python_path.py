"""Facts about PYTHONPATH for other processes."""

from pathlib import Path

import pytest

from relay_agent.job.paths import in_front


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "/ours"),
        ("", "/ours"),
        ("/x", "/ours:/x"),
        ("/x::/y", "/ours:/x::/y"),
        ("/x:/ours", "/ours:/x"),
    ],
)
def test_directory_in_front(before, after):
    """Once, and everything else stays as it is."""
    assert after == in_front(Path("/ours"), before)
