"""Facts about the Python that runs the agent, and its environment."""

import sys
import textwrap
from pathlib import Path

import pytest

from relay_agent.node.in_job.own_python import agent_environment, find_python, without_python_options
from relay_core.errors import ConfigurationError
from tests.support.jobs.processes import run_job


@pytest.mark.parametrize("name", ["python", "python3.13t", "python3-dbg", "Python", "pypy3", "platform-python3.9"])
def test_interpreters(monkeypatch, name):
    """An executable with the name of an interpreter is used."""
    monkeypatch.setattr(sys, "executable", f"/somewhere/{name}")
    assert f"/somewhere/{name}" == find_python()


def test_link_to_an_interpreter(monkeypatch, tmp_path):
    """A link with another name is used if it leads to an interpreter."""
    (tmp_path / "python3.11").touch()
    (tmp_path / "trainer").symlink_to(tmp_path / "python3.11")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "trainer"))
    assert str(tmp_path / "trainer") == find_python()


@pytest.mark.parametrize(("name", "frozen"), [("mayahost", False), ("", False), ("python3", True)])
def test_program_that_embeds_python(monkeypatch, name, frozen):
    """Any other program is never started, nor is one that was frozen with its Python; RELAY_PYTHON names another."""
    monkeypatch.setattr(sys, "executable", name and f"/somewhere/{name}")
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    with pytest.raises(ConfigurationError, match=r"this program embeds Python.*RELAY_PYTHON"):
        find_python()
    monkeypatch.setenv("RELAY_PYTHON", "/other/python")
    assert "/other/python" == find_python()


def test_options_of_the_jobs_python(monkeypatch):
    """Options for the job's own Python are not passed on, but those that say where Python's files are."""
    for name in (
        "PYTHONPROFILEIMPORTTIME",
        "PYTHONDEVMODE",
        "PYTHONTRACEMALLOC",
        "PYTHONWARNINGS",
        "PYTHONASYNCIODEBUG",
    ):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONHOME", "/home")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/lib")
    for environ in (without_python_options(), agent_environment()):
        names = {name for name in environ if name.startswith("PYTHON")}
        assert {"PYTHONHOME"} == names - {"PYTHONPATH", "PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE"}
        assert "/lib" == environ["LD_LIBRARY_PATH"]


async def test_packages_that_only_sys_path_has(tmp_path):
    """An agent starts whose packages only `sys.path` has, each in a directory of its own, and ignores the job's files.

    Bazel, PEX and Spark start programs in this way.
    """
    links = textwrap.dedent(f"""
        import os, sys, sysconfig
        import relay_agent, relay_core
        packages, roots = sysconfig.get_path("purelib"), []
        names = [name for name in os.listdir(packages) if not name.endswith((".pth", "-info"))]
        entries = [os.path.join(packages, name) for name in names]
        for entry in [*entries, *map(os.path.dirname, (relay_agent.__file__, relay_core.__file__))]:
            root = os.path.join({str(tmp_path)!r}, os.path.basename(entry) + ".whl")
            os.makedirs(root)
            os.symlink(entry, os.path.join(root, os.path.basename(entry)))
            roots.append(root)
        print(*roots, sep=os.pathsep)
    """)
    _, (roots,), _ = await run_job(links)
    script = tmp_path / "train.py"
    (tmp_path / "asyncio.py").write_text("raise SystemExit('this is the job')")
    script.write_text(
        textwrap.dedent("""
        import os, sys
        sys.path[:0] = sys.argv[1].split(os.pathsep)
        from relay_agent.node.in_job.client import NodeClient
        from relay_agent.settings.model import DebugSettings
        target = {"port": 5678, "rank": 0, "pid": os.getpid(), "script": "train.py", "state": "running"}
        client = NodeClient({"hc": "train"}, target, DebugSettings(), answers={})
        client.start()
        print(client.attaching.hopeless.wait(3600), client.attaching.obstacle.sentence)
        """)
    )
    bare = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    run = f"""
        import os, sys
        os.execv({str(bare)!r}, [{str(bare)!r}, {str(script)!r}, {roots!r}])
    """
    status, out, err = await run_job(run, PYTHONPATH="", RELAY_NODE_DIR=str(tmp_path / "node"))
    assert (0, ["True no connection string is configured"]) == (status, out), err
    assert "" == err
