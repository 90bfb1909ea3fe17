"""The contract between agent and client above the tunnel: the JSON objects and stream names that they exchange.

    announcement   `AgentInfo`: an agent and its targets           agent -> client   WELCOME info, then STATUS
    metadata       `ClientInfo`: id and user of a client           client -> agent   HELLO info
                   `ClientStatus`: conflicting claims              client -> agent   STATUS
                   `StreamMetadata`: the user of a stream          both ways         metadata of OPEN
    requests       `Wake`, `Listen`, ..., and their responses      client -> agent   name in OPEN, then DATA
    questions      `Question`, in DATA, and `NodeReplies`          both ways         DATA

Each class is used by both sides. `relay_core.records` encodes and parses it, except where it has a method `encode` or
`parse` of its own. The package performs no I/O.

Compatibility between versions:

- A reader ignores unknown fields and does not pass them on.
- A field that is missing, has the wrong type or is out of range is read as its default. Parsing raises no exception; a
  record without a required field, such as a target without a port, counts as missing.
- New fields may be added at any time. The name and the meaning of a field never change without a higher `VERSION`.
- An agent announces its version. A client with a lower version uses the fields that it knows, and logs a line.

Texts come from another machine and are untrusted. A reader that displays them passes `clean`, which is applied to each
text.
"""

__all__ = ["VERSION"]

VERSION = 1
"""Version of this contract."""
