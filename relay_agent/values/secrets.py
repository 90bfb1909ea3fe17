"""Recognizes secrets in the job, and finds those in its environment, so that they do not leave its process.

`is_secret` states the rule. It replaces too much rather than too little, but for words that are called key or token.
"""

from __future__ import annotations

import os
import re

HIDDEN = "***"
"""What is shown in place of a secret."""
MIN_LENGTH = 8
"""Minimum number of characters of an environment variable's secret value that is recognized in other texts."""
MAX_SHORT = 5
"""Maximum number of characters of a text that is too short for a key or token that a program has made."""
MAX_WORD = 15
"""Maximum number of letters of a word; fewer than the keys and tokens of services have in a row."""

_NAME = re.compile(
    # the end of a word, as in PGPASSWORD
    r"(?:secret|password|passwd|passphrase|credential|conn(?:ection)?_?str(?:ing)?)s?(?![a-z])"
    r"|(?:api|access|account|auth|private|secret|subscription|storage|encryption|signing|license|master|session|security"
    r"|refresh|pass|openai|anthropic|azure|wandb|github|gitlab|(?<![a-z])(?:aws|gh|hf|hub|ssh))[_.-]?(?:key|token)s?(?![a-z])"
    # whole words: AUTH, but not AUTHOR
    r"|(?<![a-z])(?:sas|auth|authorization|pass|passcode|jwt|cookie|cred|dsn|bearer|otp)s?(?![a-z])"
    # MYSQL_PWD, but not the directories PWD and OLDPWD
    r"|(?<=[a-z0-9]_)pwd(?![a-z])",
    re.IGNORECASE,
)
# MYKEYS, but not KEYBOARD or TOKENIZERS_PARALLELISM
_AMBIGUOUS_NAME = re.compile(r"(?:(?:key|token)|(?<![a-z])(?:sig|signature|pat))s?(?![a-z])", re.IGNORECASE)
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PART = re.compile(r"[^\s._/\\:|<>@'\-\x80-\ufffc\U00010000-\U0010ffff]+")
"""What is between spaces, the separators of paths and characters that no key or token has."""
_WORD = re.compile(
    r"[\"#(\[{]?(?:[a-z]+|[A-Z]+|[A-Z][a-z]+|(?:[A-Z][a-z]{2,}){2,3}|0*\d{1,5})?[\"(),;!?\]}]{,2}|[!-/:-@\[-`{-~]{1,3}"
)
_GROUPS = re.compile(r"[A-Za-z]{4}(?:[ -][A-Za-z]{4}){3,}")
"""Passwords that services make for an application, and keys of licences, in groups of four letters."""
_NUMBERED = re.compile(r"[A-Za-z][a-z]*\d{1,3}[a-z]?")
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


def is_secret(name: str, text: str, *, is_in_program: bool = False) -> bool:
    """Return whether a text is a secret, by its form or its name.

    - By its form, whatever its name is: a connection string, a URL with a password, a JSON Web Token, a private key, a
      token with a known beginning, or a text in which a secret follows its name.
    - By its name, whatever its form is: password, secret, auth, sas, api_key, hf_token and other names that are used
      for secrets only.
    - By its name in the environment, and by both in a program, if its name has one of the words key, token, signature,
      sig and pat. In a program, these are also names of parts of a model or a text, so a text is shown if it has at
      most five characters (in addition to angle brackets), or consists of words, between which there are spaces or the
      separators of a path. A word has at most fifteen characters; its letters are of one case, or begin with a capital
      as in Norm and LayerNorm. If the text has lower-case words, there may also be numbers of up to five digits, and in
      a path without hyphens, words with a number at their end, such as layer1. All else is a secret, such as a single
      word with a digit, or groups of four letters. A weak password of letters is shown.

    Args:
        name: The name of an environment variable, or all names and keys that lead to the text.
        text: The text.
        is_in_program: Whether the text is in a variable of the program, not of the environment.
    """
    words = _CAMEL_CASE.sub("_", name)
    by_both = _AMBIGUOUS_NAME.search(words) and not (is_in_program and _consists_of_words(text))
    return bool(_VALUE.search(text) or _NAME.search(words) or by_both)


def _consists_of_words(text: str) -> bool:
    if len(text.strip("<|>")) <= MAX_SHORT:
        return True
    if _GROUPS.fullmatch(text):
        return False
    parts = _PART.findall(text)
    is_path = (len(parts) > 1 or text[0] == "<") and not re.search(r"[\s-]", text)
    if max(map(len, parts), default=0) > MAX_WORD or (re.search("[0-9]", text) and not re.search("[a-z]{3}", text)):
        return False
    return all(_WORD.fullmatch(each) or (is_path and _NUMBERED.fullmatch(each)) for each in parts)


def secrets_of_environment() -> list[str]:
    """Return the secret values of this process's environment variables, which the job may have in other variables."""
    environ = os.environ if type(os.environ) is os._Environ else {}  # noqa: SLF001 - a class of the job executes its code
    values = ((name, environ.get(name, "")) for name in list(environ))  # a copy, as other threads may change them
    return [value for name, value in values if len(value) >= MIN_LENGTH and is_secret(name, value)]
