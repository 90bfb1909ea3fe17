"""Startup code for the Python processes of a job: `relay-agent run` puts this directory first in PYTHONPATH.

While a process starts, the directory is in `sys.path`, so its files are top-level modules there. This is why the module
that `sitecustomize` imports has an unusual name.
"""
