"""A process that has no file descriptors left."""

import contextlib
import resource
from collections.abc import Iterator

__all__ = ["no_descriptors"]


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing within the block; what is open stays so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
