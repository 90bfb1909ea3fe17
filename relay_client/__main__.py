"""`python -m relay_client` is `relay-client`."""

from relay_core.program.start import client as run

if __name__ == "__main__":
    run()
