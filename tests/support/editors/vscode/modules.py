"""Runs modules of the extension in `vscode/` under Node, outside VS Code."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine.deadline import DEADLINE

__all__ = ["EXTENSION", "needs_esbuild", "run_extension_modules"]

EXTENSION = Path(__file__).parents[4] / "vscode"
ESBUILD = EXTENSION / "node_modules" / ".bin" / "esbuild"
RECORDED_API = Path(__file__).parent / "recorded_api.js"

needs_esbuild = pytest.mark.skipif(not ESBUILD.exists(), reason="esbuild is not installed: run make vsix")


async def run_extension_modules(
    program: str, to: Path, *arguments: str, given: object = None, instead: dict[str, str] | None = None
) -> list[Any]:
    """Bundle a TypeScript program with the extension's modules that it imports, run it, and return what it prints.

    Args:
        program: Its text; it imports modules as './src/NAME', prints one JSON value a line, and runs in `to`. `vscode`
            is `recorded_api.js`.
        to: The directory for the bundle.
        arguments: For the program.
        given: A value that the program reads from its standard input as JSON.
        instead: The text of a module for each module of Node that it takes the place of.
    """
    bundle = to / "program.cjs"
    aliases = {"vscode": RECORDED_API}
    for number, (name, text) in enumerate((instead or {}).items()):
        aliases[name] = to / f"module{number}.cjs"
        aliases[name].write_text(text)
    bundling = await asyncio.create_subprocess_exec(
        *(ESBUILD, "--bundle", "--platform=node", "--loader=ts", "--log-level=error"),
        *(f"--alias:{name}={path}" for name, path in aliases.items()),
        f"--outfile={bundle}",
        cwd=EXTENSION,
        stdin=asyncio.subprocess.PIPE,
    )
    await asyncio.wait_for(bundling.communicate(program.encode()), DEADLINE)
    assert 0 == bundling.returncode
    running = await asyncio.create_subprocess_exec(
        "node", str(bundle), *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=to
    )
    stdout, _ = await asyncio.wait_for(running.communicate(json.dumps(given).encode()), DEADLINE)
    assert 0 == running.returncode
    return [json.loads(line) for line in stdout.splitlines()]
