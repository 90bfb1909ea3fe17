"""`relay-client demo`: a debug session through a relay, entirely on this machine and without Azure."""

from relay_client.demo.run import run_demo

__all__ = ["run_demo"]
