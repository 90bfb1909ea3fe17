"""`relay-agent run` with real processes: the command is left alone, and exactly its programs take part.

What a process does when it takes part is not the matter here. In its place the jobs have a recorder, which they get by
a `sitecustomize` of their own: that it runs at all is a fact of its own.
"""

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.jobs.processes import ROOT
from tests.support.jobs.run_stage import RECORDER, Stage
from tests.support.machine.deadline import DEADLINE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a process becomes another one on POSIX systems only")

CALL = "make the code call start_remote_debugging_from_args()"
HINT = f"hint: put the code in a file, or {CALL}"
NOT_DEBUGGED = {
    "-c": f"code given with -c is not debugged. {HINT}",
    "-": f"a program from stdin is not debugged. {HINT}",
}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


# The command is left alone:


@pytest.mark.parametrize("status", [0, 7, 255])
async def test_the_exit_status_is_the_command_s(stage: Stage, status: int):
    """Any of them."""
    assert (status, b"", "") == await stage.run("sh", "-c", f"exit {status}")


@pytest.mark.parametrize("program", [("{0}/train.py",), ("-m", "train")])
async def test_a_script_needs_no_command(stage: Stage, program: tuple[str, ...]):
    """`python -m relay_agent train.py 3` runs it as `python -m paipdb` did, with the options of this Python."""
    stage.write("train.py", "import sys; print(sys.argv[1:], sys.flags.dont_write_bytecode); sys.exit(5)")
    words = [word.format(stage.directory) for word in program]
    command = (sys.executable, "-B", "-m", "relay_agent", *words, "3", "--hc")
    environ = {"RELAY_DEBUG_HC": "myhc", "PYTHONPATH": os.pathsep.join([str(ROOT), str(stage.directory / "site")])}
    status, out, err = await stage.run(*command, under_run=False, **environ)
    assert (5, b"['3', '--hc'] 1\n", "") == (status, out, err)
    assert ["-B", *words, "3", "--hc"] in [entry["program"] for entry in stage.record()]


async def test_bytes_pass_through(stage: Stage):
    """Standard input and output are the command's own, whatever is in them."""
    data = bytes(range(256)) * 1000
    assert (0, data, "") == await stage.run("cat", stdin=data)


async def test_a_signal_reaches_the_command(stage: Stage):
    """It is the same process, so it ends by the signal that it was sent."""
    async with stage.start("sh", "-c", "echo $$; exec sleep 60") as process:
        assert process.stdout is not None
        assert f"{process.pid}\n".encode() == await asyncio.wait_for(process.stdout.readline(), DEADLINE)
        process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == await asyncio.wait_for(process.wait(), DEADLINE)


@pytest.mark.parametrize("name", ["SIGPIPE", "SIGXFSZ", "SIGINT"])
async def test_signals_mean_to_the_command_what_they_always_mean(stage: Stage, name: str):
    """Python ignores some, and what is ignored would stay so in the command."""
    number = getattr(signal, name)
    assert (-number, b"", "") == await stage.run("sh", "-c", f"kill -{number:d} $$; echo survived")


@pytest.mark.parametrize(
    ("name", "content", "mode", "status", "sentence"),
    [
        ("./missing", None, 0, 127, "command not found: './missing'"),
        ("missing-command", None, 0, 127, "command not found: 'missing-command'"),
        (
            "./train.py",
            "print()",
            0o644,
            126,
            "cannot start './train.py': Permission denied. hint: try: relay-agent",
        ),
        (
            "./broken",
            "#!/no/such/interpreter\n",
            0o755,
            127,
            "the interpreter named in the first line of './broken'",
        ),
        ("./text", "no program\n", 0o755, 126, "cannot start './text': Exec format error"),
    ],
)
async def test_a_command_that_cannot_be_started_is_reported(
    stage: Stage, name: str, content: str | None, mode: int, status: int, sentence: str
):
    """With the statuses that a shell would have: 127 where nothing is found, 126 where it is not a program."""
    if content is not None:
        stage.write(name, content, mode)
    found, out, err = await stage.run(name)
    assert (status, b"") == (found, out)
    assert sentence in err
    assert 1 == err.count("\n")


SHOW_STATE = """
    import os, sys
    print(sys.path, sys.argv, sys.flags, sorted(sys.modules["sitecustomize"].__dict__))
    print(sorted(set(sys.modules) - {"_relay_debug_programs"}))
"""


@pytest.mark.parametrize("options", [(), ("-S",), ("-I",), ("-E",), ("-s",), ("-P",)])
async def test_a_process_that_takes_no_part_is_as_it_would_be(stage: Stage, options: tuple[str, ...]):
    """Same path, same modules but one, same `sitecustomize`, and not a word, in every mode of Python."""
    if options == ("-P",) and sys.version_info < (3, 11):
        pytest.skip("-P came with Python 3.11")
    code = textwrap.dedent(SHOW_STATE).replace('sys.modules["sitecustomize"]', 'sys.modules.get("sitecustomize", os)')
    if options == ("-S",):  # nobody has come by to take our directory away
        code = code.replace("sys.path", "[entry for entry in sys.path if 'inject' not in entry]")
    usual = await stage.python(*options, "-c", code, under_run=False)
    status, out, err = await stage.python(*options, "-c", code)
    assert usual == (status, out, err.removeprefix(f"relay-agent: {NOT_DEBUGGED['-c']}\n"))
    assert [] == stage.record()


# Existing sitecustomize:


async def test_code_of_the_command_line_is_not_debugged(stage: Stage):
    """One line states that code given with -c does not take part; there is none if debugging is off, or for a file."""
    status, _, err = await stage.python("-Wignore", "-c", "pass")
    assert (0, f"relay-agent: {NOT_DEBUGGED['-c']}\n") == (status, err)
    assert (0, [], "") == await stage.python("-c", "pass", RELAY_DEBUG="off")
    assert (0, [], "") == await stage.python(stage.write("train.py", "pass"), "-c", "config")
    assert ["train.py"] == stage.programs()


@pytest.mark.parametrize("options", [(), ("-",), ("-u", "-", "argument")], ids=" ".join)
async def test_a_program_from_stdin_is_not_debugged(stage: Stage, options: tuple[str, ...]):
    """One line states this, and the program runs as ever; there is none if Python only shows its version."""
    found = await stage.run(sys.executable, *options, stdin=b"print('ran')\n")
    assert (0, b"ran\n", f"relay-agent: {NOT_DEBUGGED['-']}\n") == found
    assert "" == (await stage.python("--version"))[2]
    assert [] == stage.record()


@pytest.mark.parametrize("name", ["code", "build", "notebook"])
async def test_a_package_of_the_project_is_debugged_whatever_its_name(stage: Stage, name: str):
    """`python -m` finds it in the current directory before a module of Python or a tool of that name."""
    (stage.directory / name).mkdir()
    stage.write(f"{name}/__init__.py", "")
    stage.write(f"{name}/train.py", "print('ran')")
    assert (0, ["ran"], "") == await stage.python("-m", f"{name}.train")
    assert 1 == len(stage.record())
    await stage.python("-m", f"{name}.missing")
    assert 1 == len(stage.record())


@pytest.mark.parametrize(("options", "letter"), [(("-E",), "E"), (("-W", "ignore", "-uI"), "I"), (("-S",), "S")])
async def test_python_that_ignores_the_run(stage: Stage, options: tuple[str, ...], letter: str):
    """One line states that the options of the command keep the program from being debugged."""
    status, _, err = await stage.python(*options, stage.write("train.py", "pass"), "-c", "config")
    line = f"relay-agent: python -{letter} ignores the settings of the run. hint: leave out -{letter}, or {CALL}\n"
    assert (0, line) == (status, err)
    assert [] == stage.record()


@pytest.mark.parametrize("options", [("-u",), ("-Wignore::DeprecationWarning", "-XImportantE")], ids=" ".join)
async def test_options_that_change_nothing(stage: Stage, options: tuple[str, ...]):
    """Other options of Python, and those of the program, are not remarked on."""
    assert (0, [], "") == await stage.python(*options, stage.write("train.py", "pass"), "-E", "-I")
    assert 1 == len(stage.record())


async def test_an_existing_sitecustomize_runs_as_it_would(stage: Stage):
    """Once, before the program takes part, and it is the module that everybody sees."""
    stage.write("site/sitecustomize.py", RECORDER + "\nprint('mine', __name__, __file__)\nvalue = 7\n")
    program = stage.write("train.py", "import sitecustomize; print(sitecustomize.value)")
    mine = f"mine sitecustomize {stage.directory / 'site' / 'sitecustomize.py'}"
    assert (0, [mine, "7"], "") == await stage.python(program)
    assert ["train.py"] == stage.programs()


@pytest.mark.parametrize("statement", ["1 / 0", "import no_such_module", "raise ImportError(name='sitecustomize')"])
async def test_an_error_in_an_existing_sitecustomize_is_reported_as_ever(stage: Stage, statement: str):
    """`site` prints the same as without us, and the program takes part all the same."""
    stage.write("site/sitecustomize.py", f"{RECORDER}\n{statement}\n")
    program = stage.write("train.py", "import sys; print('ran', 'sitecustomize' in sys.modules)")
    usual = await stage.python(program, under_run=False)
    status, out, err = await stage.python(program)
    assert (0, usual[2]) == (status, err)
    assert out[0].startswith("ran")
    assert ["train.py"] == stage.programs()


async def test_without_an_existing_sitecustomize_nothing_is_missing(stage: Stage):
    """The path to ours is gone before the program begins."""
    program = stage.write("train.py", "import sys; print([entry for entry in sys.path if 'inject' in entry])")
    (stage.directory / "site" / "sitecustomize.py").rename(stage.directory / "site" / "usercustomize.py")
    status, out, _ = await stage.python(program, RELAY_DEBUG="on-demand", RELAY_DEBUG_PORT="x", under_run=False)
    assert (0, ["[]"]) == (status, out)


@pytest.mark.parametrize(("mode", "out"), [("on-demand", ["ran"]), ("wait", ["compiled", "ran"])])
async def test_only_the_program_of_a_process_that_waits_is_compiled_before(stage: Stage, mode: str, out: list[str]):
    """Another one starts no later than without us; a wait is not worth it if the program cannot start."""
    # Python itself compiles the file without a text, which the event then lacks.
    watch = "lambda event, found: event == 'compile' and found[0] and 'train' in str(found[1]) and print('compiled')"
    stage.write("site/sitecustomize.py", f"{RECORDER}\nsys.addaudithook({watch})\n")
    assert (0, out, "") == await stage.python(stage.write("train.py", "print('ran')"), RELAY_DEBUG=mode)
    assert ["train.py"] == stage.programs()


# What goes wrong:


async def test_a_broken_setting_is_reported_and_never_breaks_the_job(stage: Stage):
    """The variables may be set by hand."""
    inject = str(ROOT / "relay_agent" / "inject")
    path = os.pathsep.join([inject, stage.environ["PYTHONPATH"]])
    environ = {"PYTHONPATH": path, "RELAY_DEBUG": "1", "RELAY_DEBUG_PORT": "x"}
    status, out, err = await stage.python(stage.write("train.py", "print('ran')"), under_run=False, **environ)
    assert (0, ["ran"]) == (status, out)
    expected = (
        "relay-agent: error: RELAY_DEBUG_PORT: invalid port: 'x'. hint: use a number from 1 to 65535, such as 5678\n"
        "relay-agent: continuing without a debugger\n"
    )
    assert expected == err
    assert [] == stage.record()


async def test_a_python_without_relay_debug_is_reported_in_one_line(stage: Stage):
    """A tool of the job may have an interpreter of its own."""
    inject = stage.directory / "inject"
    inject.mkdir()
    for name in "sitecustomize.py", "_relay_debug_programs.py":
        (inject / name).write_bytes((ROOT / "relay_agent" / "inject" / name).read_bytes())
    stage.write("site/relay_agent.py", "raise ImportError('not here')")
    path = os.pathsep.join([str(inject), str(stage.directory / "site")])
    program = stage.write("train.py", "print('ran')")
    status, out, err = await stage.python(program, under_run=False, PYTHONPATH=path, RELAY_DEBUG="1")
    assert (0, ["ran"]) == (status, out)
    assert (
        f"relay-agent: this process cannot be debugged, because {sys.executable} cannot import relay-debug: "
        "not here\n" == err
    )


@pytest.mark.parametrize(
    ("request_", "status", "last_line"),
    [
        ("SystemExit(14)", 14, ""),
        ("SystemExit", 0, ""),
        ("SystemExit('nobody came')", 1, "relay-agent: nobody came"),
        ("KeyboardInterrupt", -signal.SIGINT, ""),
    ],
)
async def test_a_process_that_is_to_end_at_its_start_ends_cleanly(
    stage: Stage, request_: str, status: int, last_line: str
):
    """Its program does not begin, and Python does not call it a fatal error."""
    program = stage.write("train.py", "print('ran')")
    found, out, err = await stage.python(program, AT_START=f"def act(): raise {request_}")
    assert (status, [], last_line) == (found, out, err.strip())


@pytest.mark.parametrize("module", ["random", "platform", "uuid"])
@pytest.mark.parametrize("status", [0, 2])
async def test_a_module_with_the_name_of_one_of_python_s_that_exits(stage: Stage, module: str, status: int):
    """Importing it, which the program itself does not, does not end the job."""
    (stage.directory / "site" / "sitecustomize.py").unlink()
    stage.write(f"{module}.py", f"raise SystemExit({status})")
    stage.write("train.py", "print('ran')")
    script = str(Path(sys.executable).with_name("relay-agent"))  # `-m` would look in the directory of the job
    node = str(stage.directory / "node")
    found, out, err = await stage.python("-m", "train", run=(script,), options=("--wait", "0"), RELAY_NODE_DIR=node)
    assert (0, ["ran"]) == (found, out), err


async def test_an_error_at_the_start_is_reported_and_the_job_continues(stage: Stage):
    """Whatever the debugger's side does wrong."""
    status, out, err = await stage.python(stage.write("train.py", "print('ran')"), AT_START="1 / 0")
    assert (0, ["ran"]) == (status, out)
    assert "relay-agent: error: ZeroDivisionError: division by zero\n" in err
