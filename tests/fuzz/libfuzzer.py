"""`python -m tests.fuzz.libfuzzer PARSER [OPTION...] CORPUS...`: one parser under libFuzzer, by atheris."""

from __future__ import annotations

import sys

import atheris

# Before anything is imported that should be measured:
with atheris.instrument_imports(include=["relay_agent", "relay_client", "relay_core", "relay_server"]):
    from tests.fuzz.parsers import PARSERS

if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], PARSERS[sys.argv[1]])
    atheris.Fuzz()
