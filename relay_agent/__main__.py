"""`python -m relay_agent` is `relay-agent`."""

from relay_core.program.start import agent as run

if __name__ == "__main__":
    run()
