"""Entry point, logging, signal handling and credential options of the command line programs.

A program imports the standard library's modules, also where PYTHONPATH leads to a project with a file `token.py`. The
job that `relay-agent run` starts has an import path of its own.
"""

import os
import sys

_STANDARD_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120 - pathlib could be a file of the project
_started = (getattr(sys, "argv", None) or [""])[0]
# The import path of another program that uses this package is its own. `-m` stands until Python has found the module.
if _started == "-m" or "relay" in os.path.basename(_started) + os.path.basename(os.path.dirname(_started)):  # noqa: PTH119,PTH120 - as above
    sys.path.sort(key=lambda entry: not str(entry).startswith(_STANDARD_LIBRARY) or "-packages" in str(entry))
