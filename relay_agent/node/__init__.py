"""The node's agent process, and how the processes of the node find it, start it and communicate with it.

directory     the lock and the socket, in a directory that only this user can access
protocol      the messages between process and agent: JSON lines
connect       process side: connect to the node's agent, or start it
client        process side: registration, and responses to the agent's requests
server        agent side: accepts processes, and runs from the first registration to the last exit
processes     agent side: the registered processes, as targets for clients
process_exit  agent side: notification when a process has exited
"""
