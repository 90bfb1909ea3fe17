"""Facts about how `make test` divides the tests among its workers."""

import pytest


@pytest.mark.xdist_group("together")
def test_tests_of_a_group_share_a_worker(request: pytest.FixtureRequest) -> None:
    """pytest-xdist recognizes a group by the end of a test id, which some versions of pytest do not let it set."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("tests are not divided into groups in this run: --dist loadgroup does that")
    assert request.node.nodeid.endswith("@together")
