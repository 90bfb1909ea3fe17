"""How `az` fails: a text and an exit status."""

from __future__ import annotations

from tests.support.azure.cloud.state import Refusal

Options = dict[str, list[str]]


class Failure(Exception):
    """The text and exit code of a command that fails."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.text, self.code = text, code


def failure(refusal: Refusal, command: str) -> Failure:
    """Return how `az` ends when a service refuses: 404 is exit status 3, but not for all commands of `keyvault`."""
    text = f"({refusal.code}) {refusal.message}\nCode: {refusal.code}\nMessage: {refusal.message}"
    if refusal.inner:
        text += f'\nInner error: {{\n    "code": "{refusal.inner}"\n}}'
    as_failed = command.startswith("keyvault secret ") and command != "keyvault secret show"
    return Failure(text, 3 if refusal.status == 404 and not as_failed else 1)
