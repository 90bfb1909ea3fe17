"""What all tests on a GPU need."""

from tests.support.jobs.helper_threads import no_thread_left

__all__ = ["no_thread_left"]
