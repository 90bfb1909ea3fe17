"""Recognizes helper processes of a job, which are not debugged, by their command lines.

Every Python process in a debug run calls this module when it starts, including launchers, compilers, DataLoader workers
and package managers. These far outnumber the ranks, so this module imports only `sys`, which takes no time.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MULTIPROCESSING = "it is a multiprocessing child process"
NO_FILE = "it runs code given with -c or from stdin, where breakpoints cannot be set"

_ISOLATING = "EIS"
"""Options with which Python ignores PYTHONPATH (-E, -I) or imports no sitecustomize (-S)."""
_OFF = frozenset({"", "0", "false", "no", "off", "none"})

_BOTH = (
    *("ray", "torchx", "dotenv", "pipenv", "honcho", "debugpy", "pip", "virtualenv", "cmake", "ninja", "cython"),
    *("wandb", "mlflow", "tensorboard", "jupyter"),
)
"""Commands, of launchers, wrappers and tools as below, that are also modules of the same name."""
_PROGRAMS = frozenset(
    {
        *_BOTH,
        # Launchers of ranks; the MPI launchers are Python programs if they were installed from PyPI.
        *("torchrun", "accelerate", "accelerate-launch", "deepspeed", "ds", "dsr", "horovodrun"),
        *("composer", "colossalai", "fabric", "lightning", "orterun", "prterun", "prun"),
        *("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich", "mpiexec.openmpi", "mpirun.mpich", "mpirun.openmpi"),
        # Wrappers that prepare the environment and then start the program, usually with exec.
        *("opentelemetry-instrument", "ddtrace-run", "newrelic-admin", "supervisord"),
        # This project and debugpy.
        *("relay-agent", "relay-client", "relay-server", "debugpy-adapter"),
        # Tools that are run by the scripts around a training program.
        *("conda", "mamba", "poetry", "pdm", "hatch", "pipx", "meson", "cythonize", "az", "aws", "gsutil", "gcloud"),
        *("kaggle", "dvc", "huggingface-cli", "hf", "gpustat", "nvitop", "jupyter-lab", "jupyter-notebook"),
    }
)
"""Commands without a suffix; a `torchrun.py` would be one of the job's own files."""
_MODULES = (
    *_BOTH,
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.elastic",
    "torch.utils.collect_env",
    "torch._inductor",
    "accelerate.commands",
    "deepspeed.launcher",
    "horovod.runner",
    "horovod.run",
    "opentelemetry.instrumentation.auto_instrumentation",
    "relay_agent",
    "relay_client",
    "relay_server",
    "setuptools",
    "build",
    "jupyterlab",
    "notebook",
    "joblib.externals",
)
"""Modules run with `python -m` or by path; their submodules are included."""
_NEVER_OWN = {module.partition(".")[0] for module in _MODULES if "." in module} | {"debugpy", "relay_agent"}
"""Packages of launchers, and of debuggers, even if a process is started in the directory of their sources."""
_HOSTS = frozenset({"cProfile", "pdb", "profile", "runpy", "trace", "unittest"})
"""Modules of the standard library that run another program."""


def is_off(mode: str) -> bool:
    """Whether a value of RELAY_DEBUG disables debugging."""
    return mode.strip().lower() in _OFF


def is_python(command: str) -> bool:
    """Whether the name of a command is that of a Python interpreter, maybe of a debug build."""
    name = command.rpartition("/")[2].removesuffix("-dbg").removesuffix("d")
    return name.rstrip("0123456789.") == "python"


def helper_reason(orig_argv: list[str]) -> str | None:
    """Return why the process with this command line should not be debugged; None if it may be debugged.

    Args:
        orig_argv: `sys.orig_argv`: interpreter, its options, and the program with its arguments.
    """
    kind, name = what_runs(orig_argv)
    if kind == "none":
        return "it does not run a program"
    if kind in {"code", "stdin"}:
        forked = "--multiprocessing-fork" in orig_argv or "multiprocessing" in name or "loky" in name
        return MULTIPROCESSING if forked else NO_FILE
    if kind == "module":
        root = name.partition(".")[0]
        if root not in _NEVER_OWN and _is_below_current_directory(name):
            return None
        is_library = root in sys.stdlib_module_names and root not in _HOSTS
        return f"'{root}' is part of Python" if is_library else _helper_module(name)
    path = name.replace("\\", "/")
    command = path.rpartition("/")[2]
    if command in _PROGRAMS or command.rstrip("0123456789.") in _PROGRAMS:
        return f"'{command}' is a launcher or a tool"
    return _helper_module(_as_module(path))


def what_runs(orig_argv: list[str]) -> tuple[str, str]:
    """Return the kind and name of the program that Python runs, parsed as Python does.

    The kinds are "script", "module", "code", "stdin" and "none". See https://docs.python.org/3/using/cmdline.html.
    """
    for letter, value in _options(orig_argv):
        if not letter:
            return "script", value
        if letter in "cm":
            return ("code" if letter == "c" else "module"), value
    only_informs = any(word.startswith(("--", "-V", "-h", "-?")) for word in orig_argv[1:])
    return ("none" if only_informs else "stdin"), ""


def isolating_option(orig_argv: list[str]) -> str:
    """Return the letter of the option with which Python ignores PYTHONPATH or imports no sitecustomize, or ""."""
    return next((letter for letter, _ in _options(orig_argv) if letter and letter in _ISOLATING), "")


def _options(orig_argv: list[str]) -> "Iterator[tuple[str, str]]":
    """Yield the letters of Python's options with their values, and then the program as a value without a letter."""
    rest = iter(orig_argv[1:])
    for argument in rest:
        if argument == "-":
            return
        if not argument.startswith("-"):
            yield "", argument
            return
        if argument == "--check-hash-based-pycs":
            next(rest, None)
        if argument.startswith("--"):
            continue
        for place, letter in enumerate(argument[1:], start=2):
            if letter not in "cmWX":
                yield letter, ""
                continue
            yield letter, argument[place:] or next(rest, "")
            if letter in "cm":
                return
            break


def _as_module(path: str) -> str:
    """Return the module name of an installed file, or "": `.../site-packages/a/b.py` is `a.b`."""
    for root in ("/site-packages/", "/dist-packages/"):
        if root in path:
            dotted = path.rpartition(root)[2].replace("/", ".")
            return dotted.removesuffix(".py")
    return ""


def _is_below_current_directory(module: str) -> bool:
    """Whether `python -m` finds a module of the project first: a directory `build` or `code` may be a package of it."""
    import os  # noqa: PLC0415 - `site` has imported it

    path = module.replace(".", "/")
    return any(os.path.isfile(path + end) for end in (".py", "/__main__.py"))  # noqa: PTH113 - as above


def _helper_module(name: str) -> str | None:
    for module in _MODULES:
        if name == module or name.startswith(module + "."):
            return f"'{module}' is a launcher or a tool"
    return None
