"""`python -m relay_agent` is `relay-agent`."""

from relay_agent.cli import run

if __name__ == "__main__":
    run()
