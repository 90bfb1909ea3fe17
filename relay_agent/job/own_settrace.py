"""Python's own `sys.settrace`, which pydevd replaces with a function that warns.

The replacement is Python code. A thread that is traced enters it again and again while another pending call waits (see
`job.main_thread`), so code in a pending call that used it might never return.
"""

from __future__ import annotations

import sys

_holder = getattr(sys.modules.get("pydevd_tracing"), "TracingFunctionHolder", None)  # if debugpy was imported before
settrace = getattr(_holder, "_original_tracing", None) or sys.settrace
