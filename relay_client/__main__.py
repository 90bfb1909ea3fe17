"""`python -m relay_client` is `relay-client`."""

from relay_client.cli import run

if __name__ == "__main__":
    run()
