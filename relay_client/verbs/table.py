"""The table of verbs."""

from __future__ import annotations

from relay_client.verbs.env import Env
from relay_client.verbs.hang import Hang
from relay_client.verbs.push import Push
from relay_client.verbs.stacks import Stacks
from relay_client.verbs.targets import Targets
from relay_client.verbs.values import Diff, Evaluate
from relay_client.verbs.verb import Verb
from relay_client.verbs.watch import Watch

VERBS: tuple[type[Verb], ...] = (Targets, Stacks, Env, Hang, Evaluate, Diff, Watch, Push)
"""Every verb that asks or changes the job, in the order in which `relay-client --help` lists them. A running
relay-client performs them, and otherwise the command itself."""
