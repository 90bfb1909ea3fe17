"""NCCL's RAS subsystem on this node: asks it for the state of the job's communicators, and parses its answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping

from relay_core.agent_api.collectives import MAX_COMMUNICATORS, MAX_REMARKS, RasCommunicator, RasStatus
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.json_values import count, items, mapping, text
from relay_core.net.loopback import until_accepted
from relay_core.net.tasks import close_writer
from relay_core.value_parsers import format_ranges

# Answers of NCCL's RAS subsystem to `VERBOSE STATUS`, as JSON (NCCL 2.28.7 and later) and as text (2.24 and later).
#
# The formats are described in the NCCL user guide, "RAS"; the client/server protocol is plain text. The text differs
# between versions, so only its paragraphs about communicators under "Errors" and "Warnings" are read. A communicator
# whose ranks have all launched the same operations is not reported. Even in a healthy job, counts may differ for a
# moment. The JSON of NCCL 2.28.9 lacks a comma if a rank is missing, which is the case that matters most.

MAX_REMARK = 200
"""Maximum number of characters in one remark."""
MAX_LISTED = 1024
"""Maximum number of ranks that one remark lists."""
INITIALIZING = 7
"""`init_state` of a rank that is still in ncclCommInitRank; 0 is success, and any other value an error."""

_COMMUNICATOR = re.compile(r"#\d+-\d+ \(([0-9a-f]{1,16})\) (.*)", re.ASCII)
"""The first line of a communicator's paragraph: `#0-0 (27a079b828ff1a75) MISMATCH`."""
_VERSION = re.compile(r".*NCCL version (\S{1,40}) .*", re.ASCII)
_WITHOUT_COMMA = re.compile(r'("nvml_dev":[ ]*\d{1,10})(\s{1,80}"status":)', re.ASCII)
"""Where NCCL 2.28.9 omits a comma."""


def parse_status(answer: str) -> RasStatus:
    """Parse an answer to `VERBOSE STATUS`, which is JSON or text; `error` is set if it is neither."""
    if answer.lstrip().startswith("{"):
        try:
            return _parse_json(mapping(_loads(answer)))
        except (ValueError, RecursionError):
            return RasStatus(error="NCCL RAS answered with JSON that cannot be parsed")
    return _parse_text(answer)


# JSON


def _loads(answer: str) -> object:
    """Return the parsed answer, with the missing commas added if it cannot be parsed without them."""
    try:
        return json.loads(answer)
    except ValueError:
        return json.loads(_WITHOUT_COMMA.sub(r"\1,\2", answer))


def _parse_json(status: Mapping[str, object]) -> RasStatus:
    found = []
    for communicator in map(mapping, items(status.get("communicators"))):
        remarks = tuple(_remarks(communicator))
        if remarks:
            name = text(communicator.get("hash"))[:MAX_REMARK].removeprefix("0x")
            found.append(RasCommunicator(name, count(communicator.get("size")) or 0, remarks[:MAX_REMARKS]))
    return RasStatus(text(status.get("nccl_version"))[:MAX_REMARK], tuple(found[:MAX_COMMUNICATORS]))


def _remarks(communicator: Mapping[str, object]) -> Iterator[str]:
    for missing in map(mapping, items(communicator.get("missing_ranks"))):
        yield _missing(missing)
    ranks = [mapping(rank) for rank in items(communicator.get("ranks"))]
    for flag, words in (("abort_flag", "aborted"), ("finalize_called", "called ncclCommFinalize")):
        if flagged := [number for number, status in _status(ranks) if status.get(flag) is True]:
            yield f"{_ranks(flagged)} {words}"
    if starting := [number for number, status in _status(ranks) if status.get("init_state") == INITIALIZING]:
        yield f"{_ranks(starting)} {'are' if len(starting) > 1 else 'is'} still initializing"
    if failed := [number for number, status in _status(ranks) if count(status.get("async_error")) not in {0, 7, None}]:
        yield f"{_ranks(failed)} reported an asynchronous error"
    yield from _different_counts(ranks)


def _status(ranks: list[Mapping[str, object]]) -> Iterator[tuple[int, Mapping[str, object]]]:
    for rank in ranks:
        if (number := count(rank.get("rank"))) is not None:
            yield number, mapping(rank.get("status"))


def _missing(rank: Mapping[str, object]) -> str:
    status = mapping(rank.get("status"))
    why = "currently not a member"
    if status.get("considered_dead") is True:
        why = "considered dead"
    elif status.get("unresponsive") is True:
        why = "not responding"
    process, host = count(rank.get("pid")), text(rank.get("host"))
    where = f" (pid {process} on {host})" if process is not None and host else ""
    return f"rank {count(rank.get('rank'))}{where} is {why}"[:MAX_REMARK]


def _different_counts(ranks: list[Mapping[str, object]]) -> Iterator[str]:
    """Yield how many operations each rank has launched, for each kind of operation for which these numbers differ."""
    by_kind: dict[str, dict[int, list[int]]] = {}
    for rank in ranks:
        number = count(rank.get("rank"))
        for kind, launched in mapping(rank.get("collective_counts")).items():
            if number is not None and (times := count(launched)) is not None:
                by_kind.setdefault(str(kind), {}).setdefault(times, []).append(number)
    for kind, by_count in by_kind.items():
        if len(by_count) > 1:
            each = (f"{times} by {_ranks(found)}" for times, found in sorted(by_count.items(), reverse=True))
            yield f"{kind[:40]} operations launched: {' and '.join(each)}"[:MAX_REMARK]


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {format_ranges(sorted(numbers)[:MAX_LISTED])}"


# Text


def _parse_text(answer: str) -> RasStatus:
    lines = answer.splitlines()
    version = next((match[1] for line in lines if (match := _VERSION.fullmatch(line[:MAX_REMARK]))), "")
    found: list[RasCommunicator] = []
    is_paragraph = False
    for line in lines:
        if match := _COMMUNICATOR.fullmatch(line.strip()[:MAX_REMARK]):
            is_paragraph = True
            found.append(RasCommunicator(match[1], remarks=(match[2],)))
        elif not line.startswith("  ") or not line.strip():
            is_paragraph = False
        elif is_paragraph and len(found[-1].remarks) < MAX_REMARKS:
            found[-1] = found[-1]._replace(remarks=(*found[-1].remarks, line.strip()[:MAX_REMARK]))
    if not version and not found and "Communicators" not in answer:
        return RasStatus(error="the response from the NCCL RAS port is not in NCCL RAS format")
    return RasStatus(version, tuple(found[:MAX_COMMUNICATORS]))


# Asks NCCL's RAS subsystem on this node for the state of the job's communicators.
#
# NCCL listens on localhost:28028, or on the address in NCCL_RAS_ADDR, unless NCCL_RAS_ENABLE is 0. Each process answers
# for the whole job. Protocol: lines of text in both directions. The answer to a status request ends when the connection
# is closed. The port is free unless the job uses NCCL, so that another user of the node can listen there.

DEFAULT_ADDRESS = "localhost:28028"
ADDRESS_VARIABLE = "NCCL_RAS_ADDR"
RAS_TIMEOUT = 3.0
"""Timeout in seconds for the whole answer. NCCL waits for processes that do not respond, up to the timeout in the
request."""
REQUEST = b"SET FORMAT json\nTIMEOUT 2\nVERBOSE STATUS\n"
"""A version of NCCL that does not know the format ignores the first line or reports an error, and answers with text."""
MAX_ANSWER = 8 * 1024 * 1024
"""Maximum number of bytes in an answer; the JSON for one rank in a communicator takes 600 bytes."""


async def ask_ras(environ: Mapping[str, str]) -> RasStatus | None:
    """Return what RAS reports, or None if no program of this user is listening on its port.

    Args:
        environ: The environment of the job.
    """
    host, _, port = environ.get(ADDRESS_VARIABLE, DEFAULT_ADDRESS).rpartition(":")
    if not port.isdecimal() or environ.get("NCCL_RAS_ENABLE") == "0":
        return None
    answer = bytearray()
    try:
        async with timeout(RAS_TIMEOUT):
            reader, writer = await asyncio.open_connection(host.strip("[]") or "localhost", int(port))
            try:
                await until_accepted(writer.transport, trust_unknown=True)
                writer.write(REQUEST)
                while len(answer) < MAX_ANSWER and (data := await reader.read(65536)):
                    answer += data
            finally:
                await close_writer(writer)
    except TIMEOUT_ERRORS:  # first, because some of them are OSErrors
        if not answer:
            return RasStatus(error=f"NCCL RAS did not answer within {RAS_TIMEOUT:g} s")
    except (OSError, OverflowError):
        if not answer:
            return None
    return parse_status(_without_acknowledgements(answer.decode(errors="replace")))


def _without_acknowledgements(answer: str) -> str:
    """Remove the lines that acknowledge or refuse the settings."""
    lines = answer.splitlines(keepends=True)
    while lines and (lines[0].strip() == "OK" or lines[0].startswith("ERROR")):
        del lines[0]
    return "".join(lines)
