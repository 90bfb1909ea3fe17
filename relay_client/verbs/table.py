"""The table of verbs."""

from __future__ import annotations

from relay_client.verbs.env import Env
from relay_client.verbs.hang import Hang
from relay_client.verbs.push import Push
from relay_client.verbs.stacks import Stacks
from relay_client.verbs.values import Diff, Evaluate

__all__ = ["VERBS", "JobRequest"]

JobRequest = Stacks | Hang | Evaluate | Diff | Push | Env
VERBS: tuple[type[JobRequest], ...] = (Stacks, Hang, Evaluate, Diff, Push, Env)
"""Every verb that asks or changes the job. A running relay-client performs them, and otherwise the command itself."""
