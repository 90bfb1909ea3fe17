"""The grammar of `--ports`: `5678`, `5678-5680`, `5678,5690`, and any mix of these.

Bad: `5680-5678` (backwards), `80-70000` (beyond 65535), `abc`, `5678,5678` (twice), an empty text, and more than
`MAX_PORTS` ports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from relay_core.errors import UsageError

__all__ = ["format_ports", "parse_ports"]

MAX_PORTS = 1024
"""More would exhaust the descriptors of a laptop's shell (often 1024 or 256), and no job needs it."""

_PART = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)


def parse_ports(text: str) -> list[int]:
    """Return the ports in the order written.

    Raises:
        UsageError: the text is no list of ports.
    """
    ports: list[int] = []
    for part in text.split(","):
        ports.extend(_parse_part(part.strip(), text))
        if len(ports) > MAX_PORTS:
            raise UsageError(f"--ports {text} is more than {MAX_PORTS} ports", hint="name only the ports of your ranks")
    if len(set(ports)) != len(ports):
        raise UsageError(f"--ports {text} names a port twice", hint="name each port once")
    return ports


def _parse_part(part: str, whole: str) -> range:
    match = _PART.fullmatch(part)
    if not match:
        raise UsageError(f"--ports {whole} is no list of ports", hint="write 5678, 5678-5680 or 5678,5690")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise UsageError(f"--ports {part} runs backwards", hint=f"write {last}-{first}")
    if first < 1 or last > 65535:
        raise UsageError(f"--ports {part} is outside 1-65535", hint="ports go from 1 to 65535")
    return range(first, last + 1)


def format_ports(ports: Sequence[int]) -> str:
    """Return ports in the grammar of `--ports`, runs joined."""
    runs: list[list[int]] = []
    for port in ports:
        if runs and port == runs[-1][-1] + 1:
            runs[-1].append(port)
        else:
            runs.append([port])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
