"""Facts about Python's own `sys.settrace`."""

from tests.support.jobs.processes import run_job

CODE = """
    import sys, types
    import debugpy

    debugpy.listen(("127.0.0.1", 0))
    from relay_agent.job.own_settrace import settrace

    print(*(type(each) is types.BuiltinFunctionType for each in (settrace, sys.settrace)))
"""


async def test_it_is_found_after_pydevd_has_replaced_it() -> None:
    """Pydevd's replacement may keep a pending call from returning; a push imports it after an attach."""
    assert (0, ["True False"]) == (await run_job(CODE))[:2]
