"""Facts about work that is deferred to the next iteration of the event loop."""

import asyncio

from relay_core.net.tasks import Deferred


async def test_requests_of_one_iteration_are_one_call() -> None:
    """The function is called once for all requests of an iteration, in the next one."""
    calls: list[str] = []
    deferred = Deferred(lambda: calls.append("called"))
    for _ in range(2):
        deferred.request()
        deferred.request()
        assert [] == calls
        await asyncio.sleep(0)
        assert ["called"] == calls
        calls.clear()
        await asyncio.sleep(0)
        assert [] == calls


async def test_the_function_may_request_the_next_call() -> None:
    """A request during the call is for the iteration after it."""
    calls: list[int] = []

    def count() -> None:
        calls.append(len(calls))
        if len(calls) < 3:
            deferred.request()

    deferred = Deferred(count)
    deferred.request()
    for expected in ([0], [0, 1], [0, 1, 2], [0, 1, 2]):
        await asyncio.sleep(0)
        assert expected == calls
