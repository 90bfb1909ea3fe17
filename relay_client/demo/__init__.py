"""`relay-client demo`: a breakpoint in a job behind a relay, on this machine and without Azure."""

from relay_client.demo.run import run_demo

__all__ = ["run_demo"]
