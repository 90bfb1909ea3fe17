"""This process's answer to the question `env`: its environment variables, without secrets.

A secret is recognized here, so that it never leaves the process. The rule replaces too much rather than too little: a
variable is a secret by the words of its name, or by the form of its value.
"""

from __future__ import annotations

import os
import re

from relay_core.agent_api.questions import Environment, ReadEnvironment

HIDDEN = "***"
"""The value of a secret in the answer."""
MAX_VARIABLES = 1000
MAX_VALUE = 4096
"""Maximum number of characters of a value; the rest is replaced by "..."."""
MAX_CHARACTERS = 256 * 1024
"""Maximum number of characters of all names and values: JSON encodes a character as up to twelve bytes, and a message
to the agent is at most 4 MiB long."""

_NAME = re.compile(
    # the end of a word, as in APIKEY and PGPASSWORD, but not in KEYBOARD or TOKENIZERS_PARALLELISM
    r"(?:key|token|secret|password|passwd|passphrase|credential|conn(?:ection)?_?str(?:ing)?)s?(?![a-z])"
    # whole words: AUTH, but not AUTHOR
    r"|(?<![a-z])(?:sas|auth|authorization|sig|signature|pass|pat|jwt|cookie|dsn)s?(?![a-z])"
    # MYSQL_PWD, but not the directories PWD and OLDPWD
    r"|(?<=[a-z0-9]_)pwd(?![a-z])",
    re.IGNORECASE,
)
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_VALUE = re.compile(
    r"(?:sharedaccess|account|private|secret|access|api)[_-]?key[\"']?\s*[=:]|sharedaccesssignature|[?&;]sig="
    r"|(?:password|passwd|pwd|token|secret)[\"']?\s*[=:]"  # also as a key in JSON
    r"|--?[\w-]*(?:password|passwd|token|secret|key)\s+\S"  # an option of a command
    r"|\bauthorization\s*:|\bbearer\s|\bbasic\s+[\w+/]{12}"  # headers of HTTP
    r"|://[^/\s]*@"  # a URL with user information
    r"|\b(?:gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|hf_|npm_|sk-|AKIA|AIza)[\w-]{16}"  # tokens with a known beginning
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\beyJ[\w-]+\.[\w-]+\.",  # PEM; a JSON Web Token
    re.IGNORECASE,
)


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable is a secret, by its name or its value."""
    return bool(_NAME.search(_CAMEL_CASE.sub("_", name)) or _VALUE.search(value))


def read_environment(_question: ReadEnvironment) -> Environment:
    """Return the environment variables as they are now, in the order of their names."""
    variables: dict[str, str] = {}
    names, size = sorted(os.environ), 0
    for name in names:
        value = os.environ.get(name)
        if value is None:  # deleted since then, by another thread
            continue
        shown = HIDDEN if is_secret(name, value) else _shortened(value)
        size += len(name) + len(shown)
        if size > MAX_CHARACTERS or len(variables) == MAX_VARIABLES:
            break
        variables[name] = shown
    return Environment(variables, len(names) - len(variables))


def _shortened(value: str) -> str:
    return value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}..."
