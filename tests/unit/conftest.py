"""Marks the unit tests that start jobs: much of what runs inside a job can only be tested inside one."""

import pytest

JOBS = frozenset({"tests.support.jobs.processes", "tests.support.debuggers.debuggee"})
"""Where the functions that start jobs are defined."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test of a module that uses one of them."""
    module = item.getparent(pytest.Module)
    names = vars(module.obj).values() if module is not None else ()
    if any(getattr(value, "__module__", None) in JOBS for value in names):
        item.add_marker("job")
