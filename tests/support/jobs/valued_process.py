"""A process of a node that has a value, for the comparison of values."""

import time
from typing import Any

from relay_agent.values.contents import fingerprint
from relay_core.agent_api.evaluation import Evaluate, Selection, Value
from relay_core.agent_api.questions import Reply
from relay_core.records import encode


class ValuedProcess:
    """It has the checksums that a job computes; a value of None does not exist in it."""

    def __init__(self, rank: int, value: Any) -> None:
        self.asked: list[Selection | None] = []
        self._rank = rank
        self._value = value

    async def reply(self, question: Evaluate) -> Reply:
        self.asked.append(question.selection)
        return Reply(5678 + self._rank, self._rank, encode(self._found(question.selection)))

    def _found(self, selection: Selection | None) -> Value:
        if self._value is None:
            return Value(error="NameError: name 'weight' is not defined")
        if selection is None:
            return Value(text=str(self._value))
        return fingerprint(self._value, selection, time.monotonic() + 60)
