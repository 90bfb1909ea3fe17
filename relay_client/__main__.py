"""Runs `relay-client` as `python -m relay_client`."""

from relay_client.cli import run

if __name__ == "__main__":
    run()
