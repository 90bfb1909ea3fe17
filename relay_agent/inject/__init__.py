"""What `relay-agent run` puts in front of PYTHONPATH: every Python process of the job comes by here as it starts.

The directory is an entry of `sys.path` for that moment, so a file here is a top-level module to those processes; hence
the unlikely name of the one that is not `sitecustomize`.
"""
