"""`python -m relay_server` is `relay-server`."""

from relay_core.program.start import server as run

if __name__ == "__main__":
    run()
