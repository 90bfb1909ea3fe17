"""Recognizes secrets in the job, so that they never leave its process.

The rule replaces too much rather than too little: a text is a secret by the words of its name, or by its form.
"""

from __future__ import annotations

import os
import re

HIDDEN = "***"
"""What is shown in place of a secret."""
MIN_LENGTH = 8
"""Minimum number of characters of an environment variable's secret value that is recognized in other texts."""

_NAME = re.compile(
    # the end of a word, as in APIKEY and PGPASSWORD, but not in KEYBOARD or TOKENIZERS_PARALLELISM
    r"(?:key|token|secret|password|passwd|passphrase|credential|conn(?:ection)?_?str(?:ing)?)s?(?![a-z])"
    # whole words: AUTH, but not AUTHOR
    r"|(?<![a-z])(?:sas|auth|authorization|sig|signature|pass|passcode|pat|jwt|cookie|cred|dsn|bearer|otp)s?(?![a-z])"
    # MYSQL_PWD, but not the directories PWD and OLDPWD
    r"|(?<=[a-z0-9]_)pwd(?![a-z])",
    re.IGNORECASE,
)
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_VALUE = re.compile(
    r"(?:sharedaccess|account|private|secret|access|api)[_-]?key[\"']?\s*[=:]|sharedaccesssignature|[?&;]sig="
    r"|(?:password|passwd|pwd|token|secret)[\"']?\s*[=:]"  # also as a key in JSON
    r"|(?<![\w-])--?[\w-]*(?:password|passwd|token|secret|key)\s+\S"  # an option of a command
    r"|\bauthorization\s*:|\bbearer\s|\bbasic\s+[\w+/]{12}"  # headers of HTTP
    r"|://[^/\s]*@|^[^/\s:@]*:[^/\s@]+@"  # a URL with user information, or its part before the path
    r"|\b(?:gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|hf_|npm_|sk-|AKIA|AIza)[\w-]{16}"  # tokens with a known beginning
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|(?<![\w-])eyJ[\w-]+\.[\w-]+\.",  # PEM; a JSON Web Token
    re.IGNORECASE,
)


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable is a secret, by its name or its value."""
    return bool(_NAME.search(_CAMEL_CASE.sub("_", name)) or _VALUE.search(value))


def secrets_of_environment() -> list[str]:
    """Return the secret values of this process's environment variables, which the job may have in other variables."""
    environ = os.environ if type(os.environ) is os._Environ else {}  # noqa: SLF001 - a class of the job executes its code
    values = ((name, environ.get(name, "")) for name in list(environ))  # a copy, as other threads may change them
    return [value for name, value in values if len(value) >= MIN_LENGTH and is_secret(name, value)]
