"""Makes pages that are written for the repository fit the site.

Links that leave docs/ become plain paths, because those files are not part of the site. A `<picture>` becomes two
Markdown images, one for each colour scheme of the theme: MkDocs changes the paths of these, and checks that the
files exist.
"""

import re
from typing import Any

PICTURE = re.compile(
    r'<picture>.*?srcset="(?P<dark>[^"]+)".*?src="(?P<light>[^"]+)".*?alt="(?P<alt>[^"]+)".*?</picture>', re.DOTALL
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links and pictures of one page; `page.file.src_uri` is relative to docs/."""
    depth = page.file.src_uri.count("/")
    outside = re.compile(rf"\[([^\]]*)\]\(((?:\.\./){{{depth + 1},}}[^)#]*)(?:#[^)]*)?\)")
    plain = outside.sub(lambda match: f"{match[1]} (`{match[2].replace('../', '')}`)", markdown)
    return PICTURE.sub(r"![\g<alt>](\g<light>#only-light)![\g<alt>](\g<dark>#only-dark)", plain)
