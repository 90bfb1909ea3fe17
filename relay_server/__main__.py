"""`python -m relay_server` is `relay-server`."""

from relay_server.cli import run

if __name__ == "__main__":
    run()
