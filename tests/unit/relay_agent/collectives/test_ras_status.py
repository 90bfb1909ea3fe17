"""Facts about reading what NCCL RAS answers. The answers have the form of the examples in NVIDIA's user guide."""

import json

from hypothesis import given
from hypothesis import strategies as st

from relay_agent.collectives.ras import parse_status
from relay_core.agent_api.collectives import RasCommunicator, RasStatus
from relay_core.records import encode, parse
from tests.unit.relay_core.agent_api.strategies import JSON

COUNTS = {"Broadcast": 0, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": 6}
WELL = {
    "init_state": 0,
    "async_error": 0,
    "finalize_called": False,
    "destroy_flag": False,
    "abort_flag": False,
}


def placed(number: int) -> dict[str, object]:
    """Return where a rank is."""
    return {
        "rank": number,
        "host": "172.16.64.245",
        "pid": 1524344 + number,
        "cuda_dev": number,
        "nvml_dev": number,
    }


def rank(number: int, status: dict[str, object] | None = None, **counts: int) -> dict[str, object]:
    """Return one element of `ranks`."""
    return placed(number) | {"status": WELL | (status or {}), "collective_counts": COUNTS | counts}


def missing(number: int, **status: bool) -> dict[str, object]:
    """Return one element of `missing_ranks`."""
    return placed(number) | {"status": {"unresponsive": False, "considered_dead": False} | status}


def answer(ranks: list[dict[str, object]], missing_ranks: list[dict[str, object]]) -> str:
    """Return an answer in the JSON format."""
    communicator = {
        "hash": "0xae94423cfbb2ef4a",
        "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
        "size": len(ranks) + len(missing_ranks),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing_ranks),
        "ranks": ranks,
        "missing_ranks": missing_ranks,
    }
    return json.dumps(
        {
            "nccl_version": "2.29.1",
            "cuda_runtime_version": 13000,
            "cuda_driver_version": 13000,
            "timestamp": "2025-12-19 13:06:53",
            "communicators_count": 1,
            "communicators": [communicator],
            "ras": {"collection_time_sec": 0.000, "timeouts_count": 0},
        },
        indent=2,
    )


def remarks(text: str) -> tuple[str, ...]:
    """Return the remarks about the only communicator."""
    (communicator,) = parse_status(text).communicators
    assert ("ae94423cfbb2ef4a", "2.29.1") == (communicator.name, parse_status(text).version)
    return communicator.remarks


def test_job_that_runs_well() -> None:
    """A communicator whose ranks have launched the same operations is not reported."""
    assert RasStatus("2.29.1") == parse_status(answer([rank(0), rank(1)], []))


def test_rank_that_does_not_respond() -> None:
    """Ranks that RAS cannot reach are named, with process and host."""
    text = answer([rank(0)], [missing(1, unresponsive=True), missing(2, considered_dead=True), missing(3)])
    assert (
        "rank 1 (pid 1524345 on 172.16.64.245) is not responding",
        "rank 2 (pid 1524346 on 172.16.64.245) is considered dead",
        "rank 3 (pid 1524347 on 172.16.64.245) is currently not a member",
    ) == remarks(text)


def test_rank_behind_the_others() -> None:
    """Ranks that have launched different numbers of an operation are named, the last one at the end."""
    text = answer([rank(0), rank(1), rank(2, AllReduce=5), rank(3)], [])
    assert ("AllReduce operations launched: 6 by ranks 0-1,3 and 5 by rank 2",) == remarks(text)


def test_states_of_ranks() -> None:
    """Ranks that are starting, finalizing, aborted or in error are named."""
    states = [{"init_state": 7}, {"finalize_called": True}, {"abort_flag": True}, {"async_error": 2}]
    text = answer([rank(number, status) for number, status in enumerate(states)], [])
    assert (
        "rank 2 aborted",
        "rank 1 called ncclCommFinalize",
        "rank 0 is still initializing",
        "rank 3 reported an asynchronous error",
    ) == remarks(text)


TEXT = """\
NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
"""


def test_text_of_older_versions() -> None:
    """In the text format, the paragraphs about communicators are read."""
    incomplete = ("INCOMPLETE", "Missing communicator data from 1 rank", "The missing rank: 21")
    mismatch = (
        "MISMATCH",
        "Communicator ranks have different collective operation counts",
        "26 ranks have launched up to operation 6650",
        "6 ranks have launched up to operation 6649",
    )
    name = "cf264af53edbe986"
    found = (RasCommunicator(name, remarks=incomplete), RasCommunicator(name, remarks=mismatch))
    assert RasStatus("2.26.2", found) == parse_status(TEXT)


def test_something_else_on_the_port() -> None:
    """Another program's answer, and JSON that was cut off, are an error and not an empty status."""
    other = "the response from the NCCL RAS port is not in NCCL RAS format"
    assert RasStatus(error=other) == parse_status("HTTP/1.1 400 Bad Request\r\n\r\n")
    cut = answer([rank(0)], [missing(1)]).replace('"nvml_dev": 1,', '"nvml_dev": 1\n')[:-20]
    assert RasStatus(error="NCCL RAS answered with JSON that cannot be parsed") == parse_status(cut)


@given(
    st.text(max_size=200)
    | st.sampled_from(TEXT.splitlines()).flatmap(lambda line: st.just(f"{line}\n" * 3))
    | st.builds(
        lambda communicators: json.dumps({"communicators": communicators}),
        st.lists(
            st.dictionaries(st.sampled_from(["hash", "size", "ranks", "missing_ranks"]), JSON | st.just([rank(1)]))
        ),
    )
)
def test_any_answer_can_be_read(text: str) -> None:
    """Whatever listens there, the result survives the wire."""
    status = parse_status(text)
    assert status.communicators == parse(RasStatus, encode(status)).communicators
