"""Every parser of bytes that somebody else has sent; importing this package registers all of them."""

from tests.fuzz.parsers import debugging, relay, tunnel, user
from tests.fuzz.registry import PARSERS, Parser

__all__ = ["PARSERS", "Parser", "debugging", "relay", "tunnel", "user"]
