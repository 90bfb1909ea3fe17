"""One debug session for all ranks of a job: one editor, and one debugger for each rank.

Why the session is a debug adapter and not an extension of one: an editor's step request names one thread, and VS Code
has no command that sends it to several sessions. Why it sits above complete sessions of the ranks: what a rank's port
does on attaching, prefetching and leaving applies here without a second implementation. The price is an encoding and a
decoding more of each message (docs/decisions/0011 and 0014).

Invariants:
  * The editor gets an answer without any rank: `initialize` and `attach` are answered before one has joined. Nothing
    waits for a rank without a time limit: a rank that hangs is what the user is looking for.
  * Ids are never reused. The editor asks about frames and values of stops that are over, and must get nothing then,
    rather than the values of another rank.
  * The loss of a rank is a missing thread and a line in the console, never the end of the session.
  * Breakpoints belong to the session. A rank that joins late receives them before it runs.

What is ugly and stays: the protocol has no request that chooses a group, so the choice is a command in the console, and
`stepping` sends the same request on behalf of ranks that the editor has not named.
"""
