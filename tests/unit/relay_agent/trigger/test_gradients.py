"""Facts about the watch of gradients, with torch's own optimizers."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from relay_agent.trigger.steps import LATER
from relay_agent.trigger.table import IN_STEPS
from relay_core.agent_api.watch import Watched
from tests.support.jobs.watching import Client

torch = pytest.importorskip("torch")
OPTIMIZER: Any = sys.modules["torch.optim.optimizer"]

SENTENCE = "the gradient of 0.weight has 1 NaN among 12 elements, first at [1, 2]; before AdamW.step()"


def ask(client: Client, expression: str = "", **fields: Any) -> Watched:
    """Ask about the gradients."""
    return client.ask("", expression, **{"id": "nan", "file": "", "line": 0, "gradients": True, "hits": 1, **fields})


def texts(client: Client, expression: str = "", **fields: Any) -> list[str]:
    """Ask about the gradients, and return what was reported."""
    return [hit.text or hit.error for hit in ask(client, expression, **fields).hits]


def model(kind: Callable[..., Any] = torch.optim.AdamW, **options: Any) -> tuple[Any, Any]:
    """Return a model and its optimizer."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    return net, kind(net.parameters(), **{"lr": 0.1, **options})


def step(net: Any, optimizer: Any, bad: float | None = None) -> list[Any]:
    """Take a step in which one number of a gradient may be another one; return the parameters before it."""
    optimizer.zero_grad()
    batch = torch.ones(5, 4)
    net(batch).sum().backward()
    if bad is not None:
        net.get_submodule("0").weight.grad[1, 2] = bad
    before = [each.detach().clone() for each in net.parameters()]
    optimizer.step()
    return before


@pytest.mark.parametrize(("bad", "name"), [(math.nan, "NaN"), (math.inf, "inf"), (-math.inf, "inf")])
def test_gradient_that_is_not_finite(client: Client, bad: float, name: str) -> None:
    """The parameter and the kind and place of the number are named, and the number of the step."""
    answer = ask(client)
    assert ("optimizer steps", "", "") == (answer.place, answer.note, answer.error)
    net, optimizer = model()
    step(net, optimizer)
    step(net, optimizer, bad)
    answer = ask(client)
    assert [SENTENCE.replace("NaN", name) + " number 2"] == [hit.text for hit in answer.hits]
    assert (2, 2, "after 1 hit") == (answer.hits[0].reached, answer.reached, answer.ended)
    assert ["alice is watching the gradients"] == client.logged


def test_held_before_the_parameters_change(client: Client) -> None:
    """The thread is held in the frame that has called the optimizer, whose variables and parameters are untouched."""
    ask(client, "batch.sum().item()", is_holding=True)
    net, optimizer = model()
    seen: list[Any] = []

    def hold(frame: Any) -> None:
        seen.append((frame.f_code.co_name, [each.detach().clone() for each in net.parameters()]))

    client.on_hold = hold
    before = step(net, optimizer, math.nan)
    assert [f"{SENTENCE}. batch.sum().item(): 20.0"] == texts(client, "batch.sum().item()", is_holding=True)
    [(name, parameters)] = seen
    assert "step" == name
    assert all(map(torch.equal, before, parameters))


@pytest.mark.parametrize(
    "file", ["<string>", "<ipython-input-3-0f1e>", "/venv/site-packages/trainer.py", "/home/a/torch/train.py"]
)
def test_caller_without_a_file_of_the_user(client: Client, file: str) -> None:
    """The expression is evaluated in code that was typed or given to `exec`, or else in the library before torch."""
    ask(client, "batch")
    names: dict[str, Any] = {}
    exec(compile("def fit(optimizer):\n    batch = 7\n    optimizer.step()", file, "exec"), names)
    net, optimizer = model()
    net(torch.ones(5, 4)).sum().backward()
    net.get_submodule("0").weight.grad[1, 2] = math.nan
    thread = threading.Thread(target=names["fit"], args=(optimizer,))  # without a frame of this file
    thread.start()
    thread.join()
    assert [f"{SENTENCE}. batch: 7"] == texts(client, "batch")


def test_expression_that_fails(client: Client) -> None:
    """What is not finite is reported also if the expression raises."""
    ask(client, "absent")
    step(*model(), math.nan)
    assert [f"{SENTENCE}. absent: NameError: name 'absent' is not defined"] == texts(client, "absent")


def test_several_parameters(client: Client) -> None:
    """The others are named, up to a number of them."""
    ask(client)
    net, optimizer = model(torch.optim.SGD)
    net(torch.full((1, 4), math.nan)).sum().backward()
    optimizer.step()
    [text] = texts(client)
    assert text.startswith("the gradient of 0.weight has 12 NaN among 12 elements, first at [0, 0]; so has ")
    assert text.endswith("1.weight; before SGD.step()")


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (lambda net: torch.nn.ModuleDict({"net": net})["net"], "0.weight"),
        (lambda net: torch.nn.ModuleDict({"module": net}), "0.weight"),
        (lambda net: torch.nn.ModuleDict({"encoder": net}), "encoder.0.weight"),
    ],
)
def test_name_of_a_parameter(client: Client, wrap: Callable[[Any], Any], name: str) -> None:
    """It is the one in the outermost module, without the name that DistributedDataParallel gives the model."""
    ask(client)
    net, optimizer = model()
    outer = wrap(net)
    step(net, optimizer, math.nan)
    assert outer is not None
    assert texts(client)[0].startswith(f"the gradient of {name} has")


def test_parameter_without_a_module(client: Client) -> None:
    """It is named by its place in the optimizer."""
    ask(client)
    first, second = (torch.ones(2, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second]}], lr=0.1)
    (second / torch.zeros(2)).sum().backward()
    optimizer.step()
    assert ["the gradient of parameter 1 has 2 inf among 2 elements, first at [0]; before SGD.step()"] == texts(client)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"foreach": True}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Adafactor, {}),
    ],
)
def test_kinds_of_optimizers(client: Client, kind: Callable[..., Any], options: dict[str, Any]) -> None:
    """All of torch's optimizers are watched, however they apply the gradients."""
    ask(client)
    step(*model(kind, **options), math.nan)
    assert 1 == len(texts(client))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_large_numbers(client: Client, dtype: Any) -> None:
    """Finite numbers are not reported, although their sum overflows."""
    ask(client)
    parameter = torch.nn.Parameter(torch.zeros(8, dtype=dtype))
    parameter.grad = torch.full((8,), torch.finfo(dtype).max, dtype=dtype)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    optimizer.step()
    assert [] == texts(client)
    parameter.grad[3] = math.nan
    optimizer.step()
    assert 1 == len(texts(client))


def test_sparse_gradients(client: Client) -> None:
    """Of a sparse gradient, the values that it contains are checked."""
    ask(client)
    embedding = torch.nn.Embedding(10, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(embedding.parameters())
    (embedding(torch.tensor([3, 3, 5])) / torch.tensor([1.0, 0.0])).sum().backward()
    optimizer.step()
    assert ["the gradient of weight has 2 inf among 4 elements, first at [0, 1]"] == [
        text.partition(";")[0] for text in texts(client)
    ]


@pytest.mark.parametrize("options", [{}, {"fused": True}])
def test_grad_scaler(client: Client, options: dict[str, Any]) -> None:
    """Infinities because of which a GradScaler makes the optimizer skip the step are none; with it, NaNs are too."""
    ask(client)
    net, optimizer = model(**options)
    scaler = torch.amp.GradScaler("cpu", init_scale=1e38)
    scaler.scale(net(torch.full((1, 4), 1e3)).sum()).backward()
    assert not all(bool(each.grad.isfinite().all()) for each in net.parameters())
    scaler.step(optimizer)
    scaler.update()
    assert [] == texts(client)


def test_gradients_that_cannot_be_read(client: Client) -> None:
    """The watch ends with the reason, and the optimizer takes its step."""
    ask(client)
    parameter = torch.nn.Parameter(torch.zeros(2, device="meta"))
    parameter.grad = torch.zeros(2, device="meta")
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.step()
    answer = ask(client)
    assert () == answer.hits
    assert answer.ended.startswith("because the step cannot be checked: ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_compiled_step(client: Client) -> None:
    """A step can be compiled as without the watch, which does not see it, and reports so."""
    net, optimizer = model(torch.optim.SGD)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.grad = torch.full_like(parameter, math.nan)

    def take() -> None:
        optimizer.step()

    ask(client)
    torch.compile(take, backend="eager")()
    assert [] == texts(client)
    assert IN_STEPS == ask(client, id="second").note
    torch.compiler.reset()


def test_condition_and_frequency(client: Client) -> None:
    """A step counts only if the condition is true in the frame of the caller; `every` checks only some of these."""
    fields: dict[str, Any] = {"condition": "bad is not None", "every": 2, "hits": 2}
    ask(client, **fields)
    net, optimizer = model(torch.optim.SGD, lr=0.0)
    for bad in (None, 1.0, math.nan, math.nan, math.nan):
        step(net, optimizer, bad)
    assert [4] == [hit.reached for hit in ask(client, **fields).hits]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python 3.13 has a new dict for each call of locals()")
def test_caller_that_keeps_its_local_names(client: Client) -> None:
    """The dict that `locals()` has returned stays as it is: an expression ends the watch, with a hint."""

    def train(net: Any, optimizer: Any) -> dict[str, Any]:
        names = locals()
        net(torch.ones(1, 4)).sum().backward()
        net[0].weight.grad[1, 2] = math.nan
        optimizer.step()
        return names

    ask(client)
    ask(client, "net", id="names")
    assert {"net", "optimizer"} == set(train(*model()))
    assert [SENTENCE] == texts(client)
    reason = "because train() calls locals(), whose result a watch would change; "
    assert (answer := ask(client, "net", id="names")).ended.startswith(reason)
    assert () == answer.hits


def test_step_within_an_expression(client: Client) -> None:
    """An expression that takes a step is not evaluated again within itself."""
    ask(client, "optimizer.step()", hits=0)
    step(*model(), math.nan)
    assert 1 == len(texts(client, "optimizer.step()", hits=0))


def test_torch_that_is_not_loaded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch waits for torch."""
    monkeypatch.setattr("relay_agent.trigger.table.SEARCH_INTERVAL", 0.0)
    with monkeypatch.context() as changed:
        changed.delitem(sys.modules, "torch.optim.optimizer")
        answer = ask(client)
        assert ("", "", "") == (answer.place, answer.note, answer.error)
    assert "optimizer steps" == ask(client).place
    step(*model(), math.nan)
    assert [SENTENCE] == texts(client)


def test_torch_that_is_being_imported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch waits until torch is complete: its optimizers are imported before what else is needed."""
    monkeypatch.setattr("relay_agent.trigger.table.SEARCH_INTERVAL", 0.0)
    with monkeypatch.context() as changed:
        changed.setattr(sys.modules["torch"].__spec__, "_initializing", True, raising=False)
        changed.delitem(sys.modules, "torch.compiler")
        assert ("", "", "") == (ask(client).place, ask(client).note, ask(client).error)
    assert "optimizer steps" == ask(client).place


def test_old_version_of_torch(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version without hooks for all optimizers is named as the reason."""
    monkeypatch.delattr(OPTIMIZER, "register_optimizer_step_pre_hook")
    assert "torch is too old to watch the steps of optimizers. hint: use a newer version of torch" == ask(client).error


def test_end_removes_the_hook(client: Client) -> None:
    """After the end of the watch, torch has the hooks that it had before."""
    hooks = OPTIMIZER._global_optimizer_pre_hooks
    before = [*hooks.values()]
    ask(client)
    assert len(before) + 1 == len(hooks)
    ask(client, is_last=True)
    assert before == [*hooks.values()]


def test_watch_that_begins_and_ends_within_a_step(client: Client) -> None:
    """The hooks of torch do not change while a hook of the job is being executed, which would end the job's step."""
    net, optimizer = model()
    notes: list[str] = []

    def slow(*_arguments: object) -> None:
        asking = threading.Thread(target=lambda: notes.append(ask(client).note))
        asking.start()
        while asking.is_alive():
            asking.join(0.01)  # executes pending calls meanwhile

    handle = OPTIMIZER.register_optimizer_step_pre_hook(slow)
    try:
        step(net, optimizer)
        handle.remove()
        assert [LATER] == notes
        assert "optimizer steps" == ask(client).place
    finally:
        handle.remove()
