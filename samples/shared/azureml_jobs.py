"""What the samples in azureml_jobs have in common: their arguments, a code folder with a wheel, and a pipeline.

The steps run in any image that has Python: their command installs relay-debug from a wheel in the code folder.
"""

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from azure.ai.ml import Input, dsl
from azure.ai.ml.entities import PipelineJob
from build_wheel import build_wheel

from relay_agent.azureml import find_problems, prepare_debug_run, rest_body

if TYPE_CHECKING:
    from azure.ai.ml import MLClient

CURATED = "azureml://registries/azureml/environments/sklearn-1.5/labels/latest"
"""One of Azure ML's own images; nothing of relay-debug is in it."""
INSTALL = "pip install --quiet ./relay_debug-*.whl && "
"""The beginning of a step's command. The dependencies come from PyPI, or from the index that pip is configured for."""
INSTALL_ONCE = f"flock /tmp/relay-debug.lock {INSTALL}"
"""The same for a step with several processes on a node, which would install at the same time."""

OptionalText = Input(type="string", optional=True)

logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)  # it warns about its own experimental classes


def parse_arguments(description: str | None, *, compute: str = "cpu-cluster") -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--is-debug", choices=["true", "false"], default="false", type=str.lower)
    parser.add_argument("--debug-relay-connection-name", metavar="NAME", help="name of your hybrid connection")
    parser.add_argument("--debug-relay-connection-string-secret", metavar="NAME", help="Key Vault secret")
    parser.add_argument("--key-vault-url", default=os.environ.get("KEY_VAULT_URL"), help="default: KEY_VAULT_URL")
    parser.add_argument("--compute", default=compute, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="wheel of relay-debug (default: build one)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent, and stay offline")
    options = parser.parse_args()
    options.is_debug = options.is_debug == "true"
    if options.is_debug and not options.debug_relay_connection_name:
        parser.error("a debug run needs --debug-relay-connection-name")
    return options


def variables(options: argparse.Namespace) -> dict[str, str]:
    """Return the environment variables of the steps."""
    return {"KEY_VAULT_URL": options.key_vault_url} if options.key_vault_url else {}


def code_with_wheel(code: Path, folder: Path, wheel: Path | None) -> Path:
    """Fill a folder with a step's code and a wheel, which is built from this checkout if none is given."""
    shutil.copytree(code, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.whl"))
    if wheel is None:
        build_wheel(folder)
    else:
        shutil.copy(wheel, folder)
    return folder


def build_pipeline(options: argparse.Namespace, name: str, components: list[Callable[..., Any]]) -> PipelineJob:
    """Return a pipeline job with one step for each component, and the pipeline inputs of a debug run."""

    @dsl.pipeline(name=name, compute=options.compute)
    def pipeline(
        is_debug: bool = False,
        debug_relay_connection_name: OptionalText = None,
        debug_relay_connection_string_secret: OptionalText = None,
    ) -> None:
        for component in components:
            component(
                is_debug=is_debug,
                debug_relay_connection_name=debug_relay_connection_name,
                debug_relay_connection_string_secret=debug_relay_connection_string_secret,
            )

    job = pipeline(
        is_debug=options.is_debug,
        debug_relay_connection_name=options.debug_relay_connection_name,
        debug_relay_connection_string_secret=options.debug_relay_connection_string_secret,
    )
    job.settings.continue_on_step_failure = True  # the other steps run on while one of them is repaired
    if options.is_debug:
        prepare_debug_run(job)
    return job


def run(options: argparse.Namespace, code: Path, build: Callable[[Path], PipelineJob]) -> int:
    """Submit a job whose code folder has the wheel, or print its REST body; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="code-") as folder:
        job = build(code_with_wheel(code, Path(folder), options.wheel))
        body = rest_body(job)
        if problems := find_problems(body):
            print(*problems, sep="\n", file=sys.stderr)
            return 1
        if options.dry_run:
            print(json.dumps(body, indent=2))
        else:
            print(connect().jobs.create_or_update(job).studio_url)
    return 0


def connect() -> "MLClient":
    """Return a client for the workspace in config.json."""
    from azure.ai.ml import MLClient  # noqa: PLC0415 - not needed for a dry run
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415

    return MLClient.from_config(DefaultAzureCredential())
