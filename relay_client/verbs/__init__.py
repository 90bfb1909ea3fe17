"""What relay-client can do with a job, each verb once; commands, control socket, page, console and MCP are front ends.

A request is a dataclass: its fields are its arguments and its form on the control socket, and `perform` does the work.
The modules import what a verb needs only when it is performed, because `--help` imports them all.
"""
