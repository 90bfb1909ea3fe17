"""The node: its one agent process, and how the node's processes find, start and talk to it.

directory   where the agent is met: a lock and a socket in a directory that only this user can enter
wire        what the two say to each other: JSON lines
join        the process's side: find the node's agent, or start it
host        the agent's side: from the first member to the last
members     what the agent knows about each member, as targets for clients
"""
