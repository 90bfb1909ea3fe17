"""Facts about finding what torch.compile has generated in a process."""

import sys
import types

import pytest

from relay_agent.job.torch_compiler import has_compiled_code, is_generated
from tests.support.jobs.processes import run_job
from tests.support.jobs.torch_job import needs_torch

CODE = (lambda: None).__code__


@pytest.mark.parametrize("module", [None, types.ModuleType("without the private names")])
def test_nothing_is_found_without_the_compiler(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType | None
) -> None:
    """Torch may not be loaded, or have other private names."""
    monkeypatch.setitem(sys.modules, "torch._dynamo.convert_frame", module)  # type: ignore[arg-type]
    assert not has_compiled_code()
    assert not is_generated(CODE)


@needs_torch
async def test_only_compiled_functions_count() -> None:
    """Code counts from the first compilation, also with `fullgraph`, until torch discards it."""
    code = """
        import torch
        from relay_agent.job.torch_compiler import has_compiled_code

        compiled = torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)
        before = has_compiled_code()
        compiled(torch.ones(1))
        print(before, has_compiled_code())
        torch._dynamo.reset()
        print(has_compiled_code())
    """
    assert ["False True", "False"] == (await run_job(code))[1]
