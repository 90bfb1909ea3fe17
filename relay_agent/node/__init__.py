"""The node's agent process, and how the processes of the node find it, start it and communicate with it.

directory        the lock and the socket, in a directory that only this user can access
protocol         the messages between process and agent: JSON lines
other_process    how a process exited, and the program that it executes
in_job           in the job's process: finds or starts the agent (`reach_agent`), registers and answers requests
                 (`client`)
in_agent         in the agent process: accepts processes (`server`) and offers them to clients (`processes`)
"""
