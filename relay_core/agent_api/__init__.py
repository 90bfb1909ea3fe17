"""The contract between agent and client above the tunnel: what they send each other in its JSON objects and names.

    announcement   `AgentInfo`: what an agent is and serves        agent -> client   WELCOME info, then STATUS
    metadata       `ClientInfo`: who a client is                   client -> agent   HELLO info
                   `ClientStatus`: ports that are claimed twice    client -> agent   STATUS
                   `StreamMetadata`: for whom a stream is opened   both ways         metadata of OPEN
    requests       `Wake`, `Stacks`, `Listen`, and the answers     client -> agent   name in OPEN, then DATA
    stacks         `NodeStacks`: the answer to `Stacks`            agent -> client   DATA

Each class has `encode()` and `parse()`, and both sides use it. Nothing here reads, sends, waits or prints.

How versions get along:

- A reader ignores fields that it does not know, and does not pass them on.
- A field that is missing, or whose value has another type or is out of range, reads as its default. `parse` raises
  nothing; where an object makes no sense without a field (a target without its port), it returns None.
- New fields may be added at any time. A field keeps its name and its meaning; when that is impossible, `VERSION` rises.
- An agent announces its version. A client that knows only a lower one uses what it understands.

Texts come from another machine and may hold anything. A reader that shows them passes `clean`, which is applied to
every text.
"""

VERSION = 1
"""Version of this contract. Agents before it announce none, which reads as 0: their `state` is `attached` for as long
as a debugger is connected, whatever the process does."""
