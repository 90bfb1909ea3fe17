"""Turns links that leave docs/ into plain paths: those files are part of the repository and not of the site."""

import re
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links of one page; `page.file.src_uri` is relative to docs/."""
    depth = page.file.src_uri.count("/")
    outside = re.compile(rf"\[([^\]]*)\]\(((?:\.\./){{{depth + 1},}}[^)#]*)(?:#[^)]*)?\)")
    return outside.sub(lambda match: f"{match[1]} (`{match[2].replace('../', '')}`)", markdown)
