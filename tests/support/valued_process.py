"""A process of a node that has a value, for the comparison of values."""

import time
from dataclasses import replace
from typing import Any

from relay_agent.values.contents import fingerprint
from relay_core.agent_api.evaluation import Evaluate, Selection, Value
from relay_core.agent_api.members import Member


class ValuedProcess:
    """It has the checksums that a job computes; a value of None does not exist in it."""

    def __init__(self, rank: int, value: Any) -> None:
        self.asked: list[Selection | None] = []
        self.logical_port = 5678 + rank
        self._member = Member(self.logical_port, rank)
        self._value = value

    async def evaluate(self, request: Evaluate) -> Value:
        self.asked.append(request.selection)
        if self._value is None:
            return Value((self._member,), error="NameError: name 'weight' is not defined")
        if request.selection is None:
            return Value((self._member,), str(self._value))
        return replace(fingerprint(self._value, request.selection, time.monotonic() + 60), members=(self._member,))
