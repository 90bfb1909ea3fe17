"""Facts about imports in a forked child, while another thread of its parent is importing the same modules."""

import sys
import textwrap

import pytest

from tests.support.jobs.processes import run_job

JOB = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from relay_agent.node.in_job import forked_imports
forked_imports.install()

class Gate:  # the import of `slow` waits here in a thread, and passes in a child
    reached, opened, owner = threading.Event(), threading.Event(), os.getpid()
    def __call__(self):
        self.reached.set()
        if os.getpid() == self.owner:
            self.opened.wait()

sys.gate = Gate()
thread = threading.Thread(target=__import__, args=("slow",), daemon=True)
thread.start()
sys.gate.reached.wait()
pid = os.fork()
if not pid:
    CHILD
    os._exit(0)
print(os.waitpid(pid, 0)[1])
sys.gate.opened.set()
thread.join()
print(sys.modules["slow"].VALUE, sys.modules["slow"].part.VALUE)
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks a process with threads")


@pytest.fixture
def package(tmp_path):
    """A directory with a package whose import waits after its submodule was imported."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "__init__.py").write_text("import sys\nimport slow.part\nsys.gate()\nVALUE = 1\n")
    (tmp_path / "slow" / "part.py").write_text("VALUE = 2\n")
    return tmp_path


async def child(package, code: str) -> list[str]:
    """Fork a child that executes the code while its parent imports the package, and return what both printed."""
    code = textwrap.indent(textwrap.dedent(code), "    ").strip()
    script = JOB.replace("from relay_agent", "import warnings; warnings.simplefilter('ignore')\nfrom relay_agent", 1)
    status, out, errors = await run_job(script.replace("CHILD", code), str(package))
    assert (0, "") == (status, errors)
    return out


async def test_unfinished_module(package):
    """The child imports the whole module, submodules included, and the parent's import completes, too."""
    out = await child(package, "import slow; print(slow.VALUE, slow.part.VALUE, flush=True)")
    assert out == ["1 2", "0", "1 2"]


async def test_submodule(package):
    """The child imports a submodule that the parent's thread had completed, as an attribute of its package."""
    assert (await child(package, "import slow.part; print(slow.part.VALUE, flush=True)"))[0] == "2"


async def test_other_module(package):
    """Modules that were complete at the fork stay the same objects in the child."""
    code = "print(os is sys.modules['os'], 'slow' in sys.modules, flush=True)"
    assert (await child(package, code))[0] == "True False"


async def test_fork_during_an_import(tmp_path):
    """A module that forks while it is imported is completed in the child, by the same import."""
    (tmp_path / "forking.py").write_text("import os\npid = os.fork()\nVALUE = 1\n")
    code = """
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from relay_agent.node.in_job import forked_imports
        forked_imports.install()
        import forking
        is_same = sys.modules["forking"] is forking
        if forking.pid:
            os.waitpid(forking.pid, 0)
        print(bool(forking.pid), is_same, forking.VALUE, flush=True)
        os._exit(0)
    """
    assert await run_job(code, str(tmp_path)) == (0, ["False True 1", "True True 1"], "")
