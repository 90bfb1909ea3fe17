"""Facts about naming a process that hold for any environment."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from relay_agent.settings.ranks import SINGLE, TABLE, ProcessIdentity, explain, identify

NAMES = sorted(
    {name.lstrip("!").replace("*", "X") for row in TABLE for name in (*row.probes(), *row.variables())}
    | {"SLURM_JOB_ID", "TORCHELASTIC_RESTART_COUNT", "HOSTNAME", "PAI_TASK_ROLE_TASK_COUNT_worker"}
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["worker", "chief", "evaluator", "task", "index"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["cluster", "task", "type", "index", "worker", "chief"]), inner, max_size=4)
    ),
    max_leaves=8,
)
VALUES = (
    st.integers(-1, 9).map(str)
    | st.sampled_from(
        ["", " ", "true", "False", "worker", "ps,worker", "10.0.0.4;10.0.0.5", "none", "4294967290", "1:4"]
    )
    | JSON.map(json.dumps)
    | st.text(st.characters(exclude_characters="\0"), max_size=8)
)
ENVIRONMENTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=12)


@given(ENVIRONMENTS)
def test_any_environment_names_a_process(environ):
    """Nothing raises, a rank is one of its world, a local rank one of its node, and a node one of the job."""
    identity = identify(environ)
    assert identity.rank >= 0
    assert identity.world_size is None or identity.rank < identity.world_size
    assert identity.local_rank is None or 0 <= identity.local_rank < (identity.local_size or identity.local_rank + 1)
    assert identity.node_rank is None or 0 <= identity.node_rank < (identity.world_size or identity.node_rank + 1)
    assert identity.restart >= 0
    assert identity.label


@given(ENVIRONMENTS)
@example({"PAI_CURRENT_TASK_ROLE_NAME": "\x1b", "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "0"})  # in a name
def test_any_explanation_agrees(environ):
    """The explanation names the row that won, in lines that a terminal shows as they are."""
    identity = identify(environ)
    lines = explain(environ, 5678)
    chosen = [line for line in lines if line.startswith("chosen: ")]
    assert 1 == len(chosen)
    assert chosen[0].startswith(f"chosen: {'none' if identity.launcher == SINGLE else identity.launcher}")
    assert all(line.isprintable() for line in lines)


@given(ENVIRONMENTS, st.integers(0, 999), st.integers(1, 999) | st.none())
def test_the_explicit_rank_wins(environ, rank, more):
    """RELAY_RANK beats whatever else is set."""
    world = "" if more is None else str(rank + more)
    identity = identify(environ | {"RELAY_RANK": str(rank), "RELAY_WORLD_SIZE": world})
    assert ("RELAY_RANK", rank) == (identity.launcher, identity.rank)


@given(ENVIRONMENTS)
def test_only_its_own_variables_count(environ):
    """Variables of nobody change nothing."""
    assert identify(environ) == identify({"PATH": "/bin", "MY_RANK": "1", "XPMI_RANK": "2"} | environ)


def test_the_default_is_a_process_on_its_own():
    """An identity without arguments is that of a job of one process."""
    assert ProcessIdentity() == identify({})
