"""Facts about the launch.json and tasks.json of `relay-client init vscode`."""

import json
import re

import pytest

from relay_client.editor_setup.entries import Entry
from relay_client.editor_setup.jsonc import Document
from relay_client.editor_setup.vscode import launch_json, tasks_json, without_ours
from relay_core.errors import ConfigurationError

RANKS = [Entry("rank 0", 5678), Entry("rank 1", 5679)]
OURS = {
    "type": "debugpy",
    "request": "attach",
    "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": "."}],
    "justMyCode": False,
    "subProcess": True,
    "preLaunchTask": "relay-client",
}


def launch(text: str = "", entries: list[Entry] = RANKS) -> str:
    return launch_json(text, entries, "launch.json")


def tasks(text: str = "", **changed: object) -> str:
    given = {"command": "relay-client", "arguments": ["--hc", "myhc"], "environ": {}, "name": "tasks.json"}
    return tasks_json(text, **{**given, **changed})


def test_a_new_launch_json() -> None:
    """There is a configuration for each rank and a compound for all, in strict JSON."""
    read = json.loads(launch())
    assert [
        {
            "name": f"Relay: rank {rank}",
            "connect": {"host": "127.0.0.1", "port": 5678 + rank},
            "presentation": {"group": "relay", "order": rank + 1},
            **OURS,
        }
        for rank in (0, 1)
    ] == read["configurations"]
    (compound,) = read["compounds"]
    assert (["Relay: rank 0", "Relay: rank 1"], True, "relay-client") == (
        compound["configurations"],
        compound["stopAll"],
        compound["preLaunchTask"],
    )


def test_one_rank_needs_no_compound() -> None:
    """A single configuration is not put into a compound."""
    assert "compounds" not in json.loads(launch(entries=RANKS[:1]))


def test_all_ranks_are_one_session() -> None:
    """The session of all ranks comes first, is not in the compound of each rank, and follows no child processes."""
    read = json.loads(launch(entries=[*RANKS, Entry("all ranks", 5600)]))
    assert ("Relay: all ranks", 5600) == (
        read["configurations"][2]["name"],
        read["configurations"][2]["connect"]["port"],
    )
    [compound] = read["compounds"]
    assert ("Relay: each rank", ["Relay: rank 0", "Relay: rank 1"]) == (compound["name"], compound["configurations"])
    assert [1, 2, 0, 4] == [each["presentation"]["order"] for each in (*read["configurations"], compound)]
    assert [True, True, False] == [each["subProcess"] for each in read["configurations"]]


MINE = """\
{
    // mine
    "configurations": [
        { "name": "Relay: rank 0", "type": "python", "request": "attach", "justMyCode": true, /* mine */
          "pathMappings": [{ "localRoot": "${workspaceFolder}/src", "remoteRoot": "/app" }] },
        { "name": "old", "type": "python" /* older */, "request": "attach", "port": 5678 },
        { "name": "local", "type": "python", "request": "launch" },
        { "name": "node", "type": "node", "request": "attach" },
    ],
    "compounds": [{ "name": "Relay: each rank", "configurations": ["Relay: rank 7", "mine"] }]
}
"""


def test_an_existing_launch_json() -> None:
    """Users keep what they changed in our entries; elsewhere only deprecated types of attach entries are replaced."""
    text = launch(MINE)
    assert launch(text) == text
    for comment in ("// mine", "/* mine */", "/* older */"):
        assert comment in text
    read = json.loads(re.sub(r"//.*|/\*.*?\*/|,(?=\s*[\]}])", "", text))
    ours, old, *others, new = read["configurations"]
    assert "Relay: rank 1" == new["name"]
    assert ("debugpy", 5678, True, "/app") == (
        ours["type"],
        ours["connect"]["port"],
        ours["justMyCode"],
        ours["pathMappings"][0]["remoteRoot"],
    )
    assert {"name": "old", "type": "debugpy", "request": "attach", "port": 5678} == old
    assert [("local", "python"), ("node", "node")] == [(each["name"], each["type"]) for each in others]


def test_the_compound_loses_ranks_that_are_gone() -> None:
    """The compound has the ranks of the last call, and what else the user has put into it."""
    assert '"configurations": ["mine", "Relay: rank 0", "Relay: rank 1"]' in launch(MINE)
    assert '"configurations": ["mine", "Relay: rank 0"]' in launch(MINE, RANKS[:1])


def test_a_task() -> None:
    """The task runs relay-client in a shell, as a background task with a problem matcher."""
    text = tasks(environ={"RELAY_CA_FILE": "ca.pem"})
    (task,) = json.loads(text)["tasks"]
    assert ("relay-client", "shell", "relay-client", ["--hc", "myhc"], True, {"env": {"RELAY_CA_FILE": "ca.pem"}}) == (
        *(task[name] for name in ("label", "type", "command", "args", "isBackground", "options")),
    )


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("relay-client: starting", "begins"),
        ("relay-client: ready on 127.0.0.1, port 5678: no agent", "ends"),
        ("2026-01-05 12:03:41 relay-client: starting", "begins"),
        ("2026-01-05 12:03:42 relay-client: ready on 127.0.0.1, port 5678: no agent", "ends"),
        ("relay-client: failed", None),
        ("relay-client: error: port 5678 on this machine is in use", "error"),
        ("relay-client: error: argument --ports: expected one argument", "error"),
        ("relay-client: error: port 5678: the job refused", None),
        ("relay-client: error: port 5678 connection 3: the agent refused", None),
        ("relay-client: warning: tunnel to node-0/1a2b3c4d: lost", None),
        ("relay-client: rank 0 on node-0: waiting for a debugger", None),
    ],
)
def test_the_problem_matcher(line: str, pattern: str | None) -> None:
    """Lines of relay-client begin or end the wait of F5, or are the reason of a failure; others are neither."""
    (task,) = json.loads(tasks())["tasks"]
    matcher = task["problemMatcher"]
    patterns = {
        "begins": matcher["background"]["beginsPattern"],
        "ends": matcher["background"]["endsPattern"],
        "error": matcher["pattern"]["regexp"],
    }
    assert [pattern] if pattern else [] == [name for name, each in patterns.items() if re.search(each, line)]


def test_a_problem_has_its_message_once() -> None:
    """VS Code groups problems by file, so the file is the program's name, and only the message is the reason."""
    (task,) = json.loads(tasks())["tasks"]
    pattern = task["problemMatcher"]["pattern"]
    found = re.search(pattern["regexp"], "relay-client: error: cannot read x: no such file")
    assert found is not None
    parts = [found[pattern[part]] for part in ("file", "severity", "message")]
    assert ["relay-client", "error", "cannot read x: no such file"] == parts


def test_an_existing_tasks_json() -> None:
    """The task gets the arguments of the last call; other tasks, comments and its presentation stay the same."""
    first = tasks('{ "tasks": [ { "label": "mine" } /* mine */ ] }', arguments=["--ports", "5678", "--verbose"])
    mine = first.replace('"silent"', '"always"')
    second = tasks(mine, arguments=["--ports", "5679"])
    assert second == tasks(second, arguments=["--ports", "5679"])
    assert "/* mine */" in second
    assert '"reveal": "always"' in second
    assert '"args": ["--ports", "5679"]' in second


@pytest.mark.parametrize(
    ("change", "text", "sentence"),
    [
        (launch, '{\n"configurations": 5}', "launch.json, line 2: 'configurations' is a single value, expected a list"),
        (launch, "{\n\n'", 'launch.json, line 3: unexpected "\'"'),
        (tasks, "{}}", "tasks.json, line 1: expected the end of the file, found '}'"),
    ],
)
def test_a_broken_file(change, text: str, sentence: str) -> None:
    """A file that is not valid is refused, with its line."""
    with pytest.raises(ConfigurationError) as failure:
        change(text)
    assert sentence == failure.value.sentence


USERS_LAUNCH = """\
{
    // mine
    "version": "0.2.0",
    "configurations": [
        { "name": "Relay: mine", "type": "debugpy", "request": "launch" } // stays
    ],
    "compounds": [
        { "name": "both", "configurations": ["Relay: mine"] }
    ]
}
"""
USERS_TASKS = '{\r\n\t"version": "2.0.0",\r\n\t"tasks": [\r\n\t\t{ "label": "build" } /* stays */\r\n\t]\r\n}\r\n'


def test_removing_what_was_added() -> None:
    """Files that had entries before have the same text again, with their comments; a second removal changes nothing."""
    for before, added in ((USERS_LAUNCH, launch(USERS_LAUNCH)), (USERS_TASKS, tasks(USERS_TASKS))):
        assert before != added
        assert before == without_ours(added, "file") == without_ours(before, "file")


@pytest.mark.parametrize("end", ["", ",", " // mine"])
def test_a_list_that_was_added(end: str) -> None:
    """A launch.json that had no list of compounds has the same text again, with or without a comma at its end."""
    text = f'{{\n    "version": "0.2.0",\n    "configurations": [ {{ "name": "mine" }} ]{end}\n}}\n'
    assert text == without_ours(launch(text), "launch.json")


@pytest.mark.parametrize(
    ("compounds", "entries"), [("[]", RANKS[:1]), ("[ /* mine */ ]", RANKS), ('[{ "name": "mine" }]', RANKS)]
)
def test_lists_of_the_user(compounds: str, entries: list[Entry]) -> None:
    """A list of compounds stays if it was empty before, or if there is a comment or another compound in it."""
    text = f'{{ "version": "0.2.0", "configurations": [{{ "name": "mine" }}], "compounds": {compounds} }}'
    assert f'"compounds": {compounds[:-1].rstrip()}' in without_ours(launch(text, entries), "launch.json")


def test_entries_before_those_of_the_user() -> None:
    """What the user has added after ours stays, with its comment; the file stays valid."""
    mine = '    // mine\n    { "name": "mine" }\n'
    text = launch().replace('        }\n    ],\n    "compounds"', f'        }},\n{mine}    ],\n    "compounds"')
    after = without_ours(text, "launch.json")
    assert mine in after
    assert [{"name": "mine"}] == Document(after, "launch.json").data["configurations"]


def test_removing_from_files_that_have_nothing_else() -> None:
    """No text is left of a file that `init` has created; a file with a comment, or without our entries, stays."""
    assert ["", ""] == [without_ours(launch(), "launch.json"), without_ours(tasks(), "tasks.json")]
    assert without_ours(f"// mine\n{launch()}", "launch.json").startswith("// mine\n{")
    empty = '{ "version": "2.0.0", "tasks": [] }'
    assert empty == without_ours(empty, "tasks.json")
