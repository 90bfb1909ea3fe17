"""Facts about capturing local variables: no code of the job is executed, and no secret is shown."""

import base64
import datetime as dt
import functools
import hashlib
import importlib.util
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import PosixPath
from types import MethodType, SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from relay_agent.stacks import capture as module
from relay_agent.stacks.capture import MAX_TEXT, NOT_IN_TIME, OTHERS, TOO_MUCH, capture
from relay_agent.values import presentation
from relay_agent.values.secrets import HIDDEN
from tests.unit.relay_agent.values.test_plain import TrapClass, TrapDict, TrapList, trap


def captured(value: object) -> str:
    """Return the text of the variable `value`."""
    return capture([sys._getframe()])[0]["value"]


class Everywhere:
    """An object whose methods all fail, with an attribute and a slot."""

    __slots__ = ("__dict__", "size")

    def __init__(self) -> None:
        object.__setattr__(self, "size", 2)
        vars_of(self)["_step"] = 1

    __getattribute__ = __getattr__ = __setattr__ = trap("access to an attribute")
    __repr__ = __str__ = __format__ = __eq__ = __hash__ = __len__ = __iter__ = __bool__ = trap("a method")
    __class__ = property(trap("__class__"))  # type: ignore[assignment]
    blocking = property(lambda _self: threading.Event().wait())


def vars_of(value: object) -> dict[str, Any]:
    return object.__getattribute__(value, "__dict__")  # type: ignore[no-any-return]


class TrapError(Exception):
    __str__ = __repr__ = args = trap("a method of an exception")  # type: ignore[assignment]


@dataclass
class Options:
    rate: float
    layers: list[int]

    __repr__ = trap("repr")


class Batch(NamedTuple):
    size: int
    labels: object


class Color(Enum):
    RED = "red"

    __repr__ = __str__ = trap("a method of an enumeration")


class Step:
    @classmethod
    def build(cls) -> None:
        pass

    def run(self) -> None:
        pass

    __repr__ = trap("repr")


class Delta(dt.timedelta):
    __repr__ = __str__ = trap("a method of an offset")


class Zone(dt.tzinfo):
    __repr__ = __str__ = utcoffset = tzname = dst = trap("a method of a time zone")


class Moment(dt.datetime):
    __repr__ = __str__ = isoformat = replace = trap("a method of a date")


released = memoryview(b"abc")
released.release()

VALUES = [
    (Options(0.1, [1, 2]), "Options(rate=0.1, layers=[1, 2])"),
    (Everywhere(), "Everywhere(size=2, _step=1)"),
    ([Everywhere()], "[Everywhere(size=2, _step=1)]"),
    (TrapDict(a=TrapList([Options(1.0, [])])), "{'a': [Options(rate=1.0, layers=[])]}"),
    (Batch(3, Color.RED), "Batch(size=3, labels=Color.RED)"),
    (deque([1, 2]), "deque([1, 2])"),
    (ValueError("bad", 3), "ValueError('bad', 3)"),
    (TrapError("x"), "TrapError('x')"),
    (TrapClass(), "TrapClass(step=3)"),
    (TrapClass, "<class TrapClass>"),
    (functools.partial(int, base=2), "partial(func=<class int>, args=(), keywords={'base': 2})"),
    (captured, "<function captured>"),
    (sys, "<module sys>"),
    (object(), "<object object>"),
    (released, "<memoryview object>"),
    (np.array(["planted"]), "ndarray[1] <U7"),
    (np.array([(1, "planted")], dtype="i4,U7")[0], "void[] [('f0', '<i4'), ('f1', '<U7')] cpu"),
    (PosixPath("/data/x"), "PosixPath('/data/x')"),
    (dt.timedelta(seconds=3), "datetime.timedelta(seconds=3)"),
    (Decimal("1.5"), "Decimal('1.5')"),
    (dt.date(2024, 1, 2), "datetime.date(2024, 1, 2)"),
    (dt.datetime.fromisoformat("2024-01-02T03:00"), "<datetime 2024-01-02T03:00:00>"),
    (dt.datetime(2024, 1, 2, tzinfo=dt.timezone(Delta(hours=1))), "<datetime 2024-01-02T00:00:00+01:00>"),
    (dt.datetime(2024, 1, 2, tzinfo=Zone()), "<datetime 2024-01-02T00:00:00 Zone>"),
    (dt.time(3, 4, tzinfo=Zone()), "<time 03:04:00 Zone>"),
    (Moment(2024, 1, 2), "<Moment object>"),
    (UUID(int=5), "UUID('00000000-0000-0000-0000-000000000005')"),
    (range(3), "range(0, 3)"),
    (slice(1, Everywhere()), "slice(1, Everywhere(size=2, _step=1), None)"),
    (Step().run, "<method Step.run>"),
    (Step.build, "<method Step.build>"),
    (MethodType(TrapClass, 1), "<method int.?>"),
    ([].append, "<function append>"),
    (np.zeros((2, 3)), "ndarray[2, 3] float64"),
    (np.array([Options(1.0, [])]), "ndarray[1] object"),
    (np.float32(1.5), "np.float32(1.5)"),
    (list(range(10**6)), "[0, 1, 2, 3, 4, 5, ...]"),
    ([[[[1]]]], "[[[[...]]]]"),
    (b"\xff", r"b'\xff'"),
    (True, "True"),
]


@pytest.mark.parametrize(("value", "text"), VALUES, ids=[text for _, text in VALUES])
def test_text(value: object, text: str) -> None:
    """A value is shown without its own code, and an object by its class and its attributes, private ones last."""
    assert text == captured(value)


@pytest.mark.parametrize(
    "value",
    ["x" * 10_000, 10**5000, {f"name {index}": "x" * 50 for index in range(50)}],
    ids=["text", "number", "dict"],
)
def test_length(value: object) -> None:
    """A text is short, whatever the value is."""
    assert MAX_TEXT == len(captured(value))


def test_torch_module() -> None:
    """A module of torch is counted without its own `parameters`; one that the job has derived, too."""
    nn = pytest.importorskip("torch", reason="torch is not installed").nn

    class Net(nn.Module):  # type: ignore[misc, name-defined] # of type Any
        __repr__ = parameters = __getattr__ = trap("a method of a module")

    net = Net()
    tables = vars_of(net)
    tables["_modules"].update(a=nn.Linear(2, 3), b=nn.Sequential(nn.Linear(3, 1)))
    tables["_modules"]["again"] = tables["_modules"]["a"]
    assert "Net 13 parameters float32 cpu training" == captured(net)
    assert "[Linear 9 parameters float32 cpu eval]" == captured([nn.Linear(2, 3).eval()])


def test_tensor_is_not_waited_for() -> None:
    """A tensor is described by what the host knows of it, and one of a class of the job by its attributes."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert "Tensor[2, 3] float32 meta" == captured(torch.empty(2, 3, device="meta"))
    assert "[1, 1] Parameter[2] float32 cpu grad" == captured(torch.nn.Parameter(torch.ones(2)))


class TrapText(str):
    __slots__ = ()
    __str__ = __repr__ = __format__ = __hash__ = __eq__ = startswith = trap("a method of a text")


def test_names_of_the_job() -> None:
    """The names of a class, of its module and of attributes are read without code of their classes."""
    named = type(TrapText("Named"), (), {})()
    assert "<Named object>" == captured(named)
    elsewhere = type("Elsewhere", (), {"__module__": TrapText("numpy")})()
    assert "<Elsewhere object>" == captured(elsewhere)
    fields = type("Fields", (tuple,), {"_fields": (TrapText("a"),)})([1])
    assert "(1,)" == captured(fields)


def test_lazy_module() -> None:
    """A module that is loaded at the first access to it is not loaded."""
    spec = importlib.util.find_spec("this")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lazy)
    kind = type("Kind", (), {"__module__": "this", "shape": 1, "dtype": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "this", lazy)
        assert "<Kind object>" == captured(kind())
        captured(lazy)
    assert "zen" not in object.__getattribute__(lazy, "__dict__")
    assert "_LazyModule" == type(lazy).__name__


def test_presenters_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that the job has registered for its values is not called."""
    monkeypatch.setattr(presentation, "_registered", {object: trap("a presenter"), float: trap("a presenter")})
    assert "[1.5, Options(rate=0.1, layers=[])]" == captured([1.5, Options(0.1, [])])


def test_modes_of_torch() -> None:
    """A mode of torch that the job has entered does not see that tensors are described."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    seen: list[object] = []

    class Function(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined] # of type Any
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Dispatch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined] # as above
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    assert ("device(type='cpu')", "torch.float32") == (captured(torch.device("cpu")), captured(torch.float32))
    values = [torch.ones(2), torch.eye(2).to_sparse(), torch.nn.Linear(1, 1)]
    with Function(), Dispatch():
        text = captured(values)
    assert ("[[1, 1] Tensor[2]", []) == (text[:17], seen)


def test_large_objects() -> None:
    """Of an object with many attributes, and of an exception with many arguments, only the first are read."""
    large = SimpleNamespace(**{f"a{index}": index for index in range(100_000)})
    assert captured(large).startswith("SimpleNamespace(a0=0, a1=1, ")
    assert captured(ValueError(*range(100_000))).startswith("ValueError(0, 1, ")


def test_odd_names_of_variables() -> None:
    """Only variables whose names are texts are shown."""
    found: list[dict[str, str]] = []
    names: dict[Any, Any] = {1: 2, ("a",): 1, "epoch": 3}
    names["__look"] = lambda: found.extend(capture([sys._getframe(1)]))
    exec("__look()", names)
    assert [{"epoch": "3"}] == found


def test_job_that_changes_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that cannot be copied is named with the reason, and the others are shown."""
    monkeypatch.setattr(module.Copy, "_first", functools.partial(_raise, LookupError("changing")))
    assert "<not shown: LookupError>" == captured([1])
    assert "2" == captured(2)


def _raise(error: Exception, *_arguments: object) -> None:
    raise error


def test_module_level_shows_variables_only() -> None:
    """At module level, modules, functions, classes and dunder names are not variables."""
    found: list[dict[str, str]] = []
    names = {"sys": sys, "capture": capture, "Options": Options, "epoch": 3}
    names["look"] = lambda: found.extend(capture([sys._getframe(1)]))
    exec("import threading\nlook()", names)
    assert [{"epoch": "3"}] == found


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() is a copy")
def test_function_that_may_keep_its_names() -> None:
    """The dict that `locals()` has returned is not changed."""

    def step(loss: int) -> object:
        kept = locals()
        loss += 1
        return kept["loss"], capture([sys._getframe()])[0], kept["loss"]

    reason = {"...": "not read: the function calls locals(), whose result that would change"}
    assert (1, reason, 1) == step(1)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts together are bounded in size and time; the first frames have them first, and the others a remark."""
    frame = sys._getframe()
    assert {OTHERS: TOO_MUCH} == capture([frame, frame], most=10)[1]
    monkeypatch.setattr(module, "BUDGET", -1.0)
    assert {OTHERS: NOT_IN_TIME} == capture([frame])[0]


def test_variables_that_are_not_shown() -> None:
    """Of a frame with more than 50 variables, the number of the others is shown in their place."""
    names = ", ".join(f"v{index}={index}" for index in range(62))
    found = _captured_of(f"def step({names}):\n    look()")
    assert [*((f"v{index}", str(index)) for index in range(50)), (OTHERS, "<not shown: 12 more>")] == [*found.items()]


# Secrets.

WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=12, max_size=20).map("planted{}".format)
NAMES = ("password", "api_key", "hfToken", "AWS_SECRET_ACCESS_KEY", "credentials", "auth", "conn_str", "_tokens")
FORMS = (
    *("Endpoint=sb://x/;SharedAccessKey={}", "https://me:{}@host/x", "https://x/c?sv=1&sig={}", "train --token {}"),
    *("Authorization: Bearer {}", '{{"password": "{}"}}', "ghp_{}xxxxxxxx", "-----BEGIN PRIVATE KEY-----{}"),
)
Wrap = Callable[[str, str], Any]


class Holder:
    """An object with an attribute."""

    def __init__(self, name: str, value: object) -> None:
        vars(self)[name] = value


WRAPS: tuple[Wrap, ...] = (
    lambda name, secret: {name: secret},
    Holder,
    lambda name, secret: Holder(name, [secret.encode()]),
    lambda name, secret: [{name: (secret,)}],
    lambda name, secret: {name: {"value": secret}},
    lambda name, secret: Holder("options", {name: frozenset({secret})}),
)


@pytest.mark.parametrize("text", ["eszy-cidp-yopu-mzgd", "ngje qfsm ojvj hhud", "ABCD-EFGH-IJKL-MNOP-QRST"])
def test_groups_of_letters(text: str) -> None:
    """Passwords that services make for an application are hidden although each group could be a word."""
    assert {"token": HIDDEN} == _captured_variable("token", text)


@settings(max_examples=400, deadline=None, phases=[Phase.generate])
@given(st.lists(st.tuples(WORD, st.sampled_from(NAMES), st.sampled_from(WRAPS)), min_size=25, max_size=25))
def test_secrets_by_name(planted: list[tuple[str, str, Wrap]]) -> None:
    """Of 10,000 texts whose variable, attribute or key is named like a secret, none is shown."""
    for word, name, wrap in planted:
        assert "planted" not in module._text("value", wrap(name, word), [])
    word, name, _ = planted[0]
    assert {name: HIDDEN} == _captured_variable(name, word)


def _captured_variable(name: str, value: object) -> dict[str, str]:
    return _captured_of(f"def step({name}):\n    look()", value)


def _captured_of(source: str, *arguments: object) -> dict[str, str]:
    found: list[dict[str, str]] = []
    names: dict[str, Any] = {"look": lambda: found.extend(capture([sys._getframe(1)]))}
    exec(source, names)
    names["step"](*arguments)
    return found[0]


def _base64(data: bytes, length: int = 24) -> str:
    return base64.b64encode(data)[:length].decode()


def _url_safe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data[: 16 + data[0] % 17]).decode().rstrip("=")


def _alphanumeric(data: bytes) -> str:
    return base64.b64encode(data, b"aZ")[:36].decode()


RANDOM = st.integers(0, 2**64).map(lambda number: hashlib.sha512(b"%d" % number).digest())
AMBIGUOUS = ("key", "keys", "token", "tokens", "_token", "cacheKey", "token_name", "signature", "sig", "pat")
MADE: tuple[Callable[[bytes], str], ...] = (
    _base64,
    _url_safe,
    _alphanumeric,
    lambda data: _base64(data, 44 + data[0] % 45),  # as Azure's, some with padding
    lambda data: base64.b32encode(data)[: 16 + data[0] % 17].decode(),
    lambda data: data[: 8 + data[0] % 25].hex(),
    lambda data: str(UUID(bytes=data[:16])),
    lambda data: f"eyJhbGciOiJIUzI1NiJ9.{_url_safe(data)}.{_url_safe(data[::-1])}",
    lambda data: f"AKIA{base64.b32encode(data)[:16].decode()}",
    lambda data: f"ghp_{_alphanumeric(data)}",
    lambda data: f"sk-proj-{_url_safe(data)}",
    lambda data: f"hf_{_alphanumeric(data)}",
    lambda data: f"{_alphanumeric(data)[:3]}8Q~{_alphanumeric(data[::-1])[:34]}",
    lambda data: f"SharedAccessSignature sr=sb%3a%2f%2fx&sig={_url_safe(data)}&se=1&skn=send",
    lambda data: f"postgres://me:{_url_safe(data)}@host/db",
)


@settings(max_examples=400, deadline=None, phases=[Phase.generate])
@given(
    st.lists(
        st.tuples(RANDOM, st.sampled_from(MADE), st.sampled_from(AMBIGUOUS), st.sampled_from(WRAPS)),
        min_size=25,
        max_size=25,
    )
)
def test_secrets_by_name_and_form(planted: list[tuple[bytes, Callable[[bytes], str], str, Wrap]]) -> None:
    """Of 10,000 keys and tokens that programs have made, none is shown if its name is only that of a key or token."""
    for data, make, name, wrap in planted:
        secret = make(data)
        text = module._text("value", wrap(name, secret), [])
        assert (True, False) == (HIDDEN in text, secret[:8] in text)
    data, make, name, _ = planted[0]
    values = [make(data), data[:16], UUID(bytes=data[:16])]
    assert [{name: HIDDEN}] * 3 == [_captured_variable(name, value) for value in values]


ORDINARY: list[tuple[str, Any]] = [
    ("tokens", ["the", "cat", "sat", ".", "It", "'s", "2024", "##ing"]),
    ("tokens", ["Ġthe", "▁hello", "Ċ", "日本語", "don't", "e.g."]),
    ("tokens", ["def", "Ġforward", "(", "self", "):", "+=", "==", "0x"]),
    ("tokens", "Hello, world! (The cat sat on 12 mats.)"),
    ("tokens", {"the": 1, "<unk>": 0}),
    ("tokens", [b"the", b"\xe2\x96\x81cat"]),
    ("token", "the"),
    ("token", "internationally"),
    ("token", "tokenizer.json"),
    ("token", "GPU"),
    ("token", "\n\n"),
    ("pad_token", "<pad>"),
    ("PAD_TOKEN", "[PAD]"),
    ("eos_token", "</s>"),
    ("tokenizer", Holder("eos_token", "<|endoftext|>")),
    ("special_tokens_map", {"cls_token": "[CLS]", "additional_special_tokens": ["<|im_start|>", "<image>"]}),
    ("token", "<|reserved_special_token_247|>"),
    ("token", "<extra_id_99>"),
    ("token", "<0x0A>"),
    ("token", "<|START_OF_TURN_TOKEN|>"),
    ("key", "layers.0.weight"),
    ("key", "layer1.0.conv1.weight"),
    ("key", "module.encoder.layers.11.self_attn.in_proj_weight"),
    ("key", "bert.encoder.layer.0.attention.output.LayerNorm.weight"),
    ("key", "encoder.block.0.layer.1.DenseReluDense.wi.weight"),
    ("key", "down_blocks.0.resnets.1.conv2d.bias"),
    ("missing_keys", ["h.0.ln_1.bias", "model.layers.0.experts.7.w1.weight"]),
    ("keys", ["input_ids", "attention_mask", "pixel_values", "labels"]),
    ("key", "optimizer"),
    ("key", ("a", 1)),
    ("key", ("exp_avg_sq", "step")),
    ("key", "train/loss"),
    ("key", "val/top5_acc"),
    ("key", "acc@1"),
    ("key", b"image-000000001"),
    ("key", "/mnt/data/train-00001-of-00008.parquet"),
    ("key", PosixPath("/mnt/data/checkpoint-1000/model.safetensors")),
    ("key", "s3://bucket/train.tar"),
    ("key", "bert-base-uncased"),
    ("key", "cuda:0"),
    ("sort_key", len),
    ("key_padding_mask", None),
    ("token_type", [Color.RED]),
    ("signature", "serving_default"),
    ("pat", "*.json"),
]


@pytest.mark.parametrize(("name", "value"), ORDINARY)
def test_keys_and_tokens_of_a_job(name: str, value: object) -> None:
    """The keys and tokens of training code are shown."""
    assert HIDDEN not in _captured_variable(name, value)[name]


@settings(max_examples=400, deadline=None, phases=[Phase.generate])
@given(st.lists(st.tuples(WORD, st.sampled_from(FORMS), st.sampled_from(WRAPS)), min_size=25, max_size=25))
def test_secrets_by_form(planted: list[tuple[str, str, Wrap]]) -> None:
    """Of 10,000 texts with the form of a secret, none is shown, whatever it is in."""
    for word, form, wrap in planted:
        assert "planted" not in module._text("value", wrap("x", form.format(word)), [])
    word, form, _ = planted[0]
    text = form.format(word)
    assert HIDDEN == captured(text) == captured(text.encode())
    assert "planted" not in captured(ValueError(text)) + captured({text: 1}) + captured(Batch(1, text))


def test_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of a secret variable of the environment is not shown wherever the job has it."""
    monkeypatch.setenv("MY_TOKEN", "planted-in-the-environment")
    assert "['a', ***]" == captured(["a", "x planted-in-the-environment"])


class Names(str, Enum):
    PASSWORD = "password"


HIDDEN_TEXTS = [
    {b"password": "planted"},
    {Names.PASSWORD: "planted"},
    {("db", "password"): "planted"},
    [("password", "planted")],
    [(b"x-api-key", b"planted")],
    ["train.py", "--password", "planted", "--epochs"],
    Holder("api_keys", {"planted": 1}),
    urlsplit("postgres://me:planted@host/db"),
    "me:planted@host:5432",
    PosixPath("/x/token=planted"),
    Holder("secret_file", PosixPath("/planted")),
    ["-----BEGIN PRIVATE KEY-----", "planted", "planted", "-----END PRIVATE KEY-----"],
]


@pytest.mark.parametrize("value", HIDDEN_TEXTS)
def test_secrets_by_place(value: object) -> None:
    """What names a text can be any kind of key, the part before it, or an option; a path is a text, too."""
    text = captured(value)
    assert "planted" not in text
    assert HIDDEN in text


def test_names_that_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of the environment is not shown as a name either, nor if it is cut off or in bytes."""
    monkeypatch.setenv("MY_TOKEN", secret := "plänted" * 300)
    kind = type(secret, (), {})
    assert "<*** object>" == captured(kind())
    assert HIDDEN == captured(kind)
    assert "Holder(***=1)" == captured(Holder(secret, 1))
    assert HIDDEN == captured(f"{'x' * 1900} {secret}") == captured(secret.encode())


def test_names_of_modules() -> None:
    """A module of torch is shown, whatever its name is."""
    nn = pytest.importorskip("torch", reason="torch is not installed").nn
    assert "Linear 9 parameters" in _captured_variable("token_embedding", nn.Linear(2, 3))["token_embedding"]


def test_secret_at_the_end_of_a_text() -> None:
    """What is cut off is searched, too: the mark of a secret may come after what is shown."""
    for before in range(1900, 2100):
        assert HIDDEN == captured(f"{'x' * before} https://me:{'planted' * 30}@host")


def test_tensors_are_not_secrets() -> None:
    """A tensor called `tokens` or `key` is shown; only texts are secrets."""
    assert {"tokens": "[3] ndarray[1] int64"} == _captured_variable("tokens", np.array([3], dtype=np.int64))
