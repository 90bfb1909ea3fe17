"""The node: its one agent process, and how the node's processes find, start and talk to it.

directory     where they meet: a lock and a socket in a directory that only this user can enter
protocol      the messages between the two: JSON lines
connect       the job's side: connect to the node's agent, or start it
client        the job's side: the registration of a process, and its answers to the agent
server        the agent's side: from the first process to the last
processes     the agent's side: what it knows about each process, as targets for clients
process_exit  the agent's side: learns that a process has ended
"""
