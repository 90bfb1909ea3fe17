"""Facts about the names of functions in stack traces."""

from relay_client.dap import function_of


def test_the_current_frame_at_an_exception() -> None:
    """The mark that pydevd appends is removed; other names are unchanged."""
    names = ["<module> (Current frame)", "<module>", "step"]
    assert ["<module>", "<module>", "step"] == [function_of({"name": name}) for name in names]
