"""What most tests of the tunnel begin with."""

import pytest

from tests.support.sessions.tunnel_link import Link, connected


@pytest.fixture
def link() -> Link:
    """A session on its first transport."""
    return connected()
