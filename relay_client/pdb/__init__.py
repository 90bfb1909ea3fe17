"""`relay-client pdb`: a terminal debugger with the commands of pdb, for a job that is somewhere else.

It speaks DAP to the debugpy in the job, as an editor does; `run_pdb` is the way in. The prompt lives in the main
thread, where Ctrl-C arrives; everything else in an asyncio loop in a thread of its own. Leaving it, in whatever way,
lets the job run on.
"""

from relay_client.pdb.prompt import Reached, local_session, run_pdb

__all__ = ["Reached", "local_session", "run_pdb"]
