"""What the session of all ranks supports: everything that debugpy supports, and stepping a single thread."""

from __future__ import annotations

from relay_client.dap.debugpy_capabilities import DEBUGPY_CAPABILITIES
from relay_core.dap.messages import Body

__all__ = ["CAPABILITIES"]

CAPABILITIES: Body = {**DEBUGPY_CAPABILITIES, "supportsSingleThreadExecutionRequests": True}
"""The body of the response to `initialize`."""
