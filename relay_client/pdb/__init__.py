"""`relay-client pdb`: a terminal debugger with the commands of pdb, for a remote job.

The debugger uses DAP to control debugpy in the job, as an editor does. `prompt.run_pdb` is the entry point. The prompt
runs in the main thread, which receives Ctrl-C; everything else runs in an asyncio loop in another thread. However the
debugger exits, the job continues.
"""
