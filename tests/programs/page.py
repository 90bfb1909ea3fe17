"""The page of the documentation about the odd programs, from the catalogue."""

from tests.programs.catalogue import CATALOGUE
from tests.programs.odd import API, EDITOR, RUN, Odd

__all__ = ["programs_page"]

PAGE = """\
# Odd programs

{note}
`tests/programs` contains small programs, each of which is odd in one way. Each of them runs plainly, under
`relay-agent run`, with a call of `start_remote_debugging` in its first line, and with an editor that stops at a
breakpoint and continues. The exit status, stdout, stderr (without the lines that begin with `relay-agent:`) and the
files that the program has written are compared with those of the plain run. "same" means that nothing differs, and with
an editor, that the breakpoint was hit.

The table was measured with Python 3.11. `python -m tests.programs` runs all programs and prints what differs.
`make test` runs all of them under `relay-agent run` and some of them in all ways, and fails if something differs that
this page does not state.

{sections}
## Known limits

These have been observed and are in no row, because no test provokes them.

- A module in PYTHONPATH with the name of one of Python's that `relay-agent run` imports, such as `shutil.py`: the
  command does not start.
- On Python 3.13, a job that creates and destroys subinterpreters after a debugger has attached can abort. It does so
  with debugpy alone, too.
- On Python 3.12 and later, `sys.monitoring.DEBUGGER_ID` stays in use after the debugger has detached, as with debugpy
  alone.
- A program that waits with `waitpid(-1, __WALL)` meets the process that starts the agent or the debug adapter.
- Children that are forked while a killed agent is being replaced keep its socket. If that agent is killed as well, no
  debugger can attach any more.
"""
TITLES = "| the program | `run` | API | editor | what does not work, and the line that reports it |\n"


def programs_page(note: str) -> str:
    """Return the page; `note` states where it comes from."""
    sections = (f"## {kind.capitalize()}\n\n{_table(programs)}" for kind, programs in CATALOGUE.items())
    return PAGE.format(note=note, sections="\n".join(sections)).rstrip() + "\n"


def _table(programs: tuple[Odd, ...]) -> str:
    return TITLES + "| --- | --- | --- | --- | --- |\n" + "".join(map(_row, programs))


def _row(odd: Odd) -> str:
    cells = [_cell(odd, way) for way in (RUN, API, EDITOR)]
    needs = f" (with {odd.needs})" if odd.needs and odd.needs not in odd.oddity else ""
    return f"| {odd.oddity}{needs} | {' | '.join(cells)} | {_limit(odd)} |\n"


def _cell(odd: Odd, way: str) -> str:
    return ", ".join(sorted(odd.differs.get(way, ()))) or "same"


def _limit(odd: Odd) -> str:
    if not odd.limit:
        return ""
    line = f"`{odd.line}`" if odd.line else "No line reports this." if odd.differs else ""
    return f"{odd.limit} {line}".rstrip()
