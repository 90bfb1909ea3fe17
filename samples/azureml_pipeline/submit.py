"""Submit the pipeline, print what would be submitted, or run its steps on this machine.

    python submit.py                                                          run the job on Azure ML
    python submit.py --is-debug true --debug-relay-connection-name myhc       the same, but wait for a debugger
    python submit.py ... --tensorboard true                                   also show the curves of the running job
    python submit.py ... --dry-run                                            print the job, and stay offline
    python submit.py ... --local                                              run it here, through a local relay

config.json, which you can download from the studio, selects the workspace.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from local_run import run_locally
from pipeline import FIRST_PORT, IMAGE, build_pipeline

from relay_agent.azureml import find_problems, prepare_debug_run, rest_body

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.ai.ml.entities import PipelineJob

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from build_wheel import build_context, describe

logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)  # it warns about its own experimental classes


def main() -> int:
    """Run the command, and return the exit status."""
    options = parse_arguments()
    if options.local:
        body = rest_body(build_job(options, IMAGE))  # no image is built: the steps run in this environment
        return complain(body) or run_locally(body, options.debug_relay_connection_name if options.is_debug else None)
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        context = build_context(IMAGE, Path(folder), options.wheel)
        return print_job(options, context) if options.dry_run else submit(options, context)


def print_job(options: argparse.Namespace, context: Path) -> int:
    """Print the REST body, with the names and hashes of the files in the image's build context."""
    body = rest_body(build_job(options, context))
    status = complain(body)
    if not status:
        print(json.dumps({"build_context": describe(context), **body}, indent=2))
    return status


def submit(options: argparse.Namespace, context: Path) -> int:
    """Submit the job to the workspace, and print its URL in the studio."""
    ml_client = connect()
    if options.debug_relay_connection_string_secret and not options.key_vault_url:
        options.key_vault_url = vault_of_workspace(ml_client)
        print(VAULT_HINT.format(url=options.key_vault_url, name=vault_name(options.key_vault_url)), file=sys.stderr)
    job = build_job(options, context)
    status = complain(rest_body(job))
    if status:
        return status
    print(ml_client.jobs.create_or_update(job, experiment_name="circle").studio_url, flush=True)
    return show_curves(options.debug_relay_connection_name) if options.tensorboard else 0


def show_curves(connection_name: str) -> int:
    """Show the jobs that are running on a hybrid connection in TensorBoard until Ctrl-C; return the exit status."""
    return subprocess.call(
        [sys.executable, "-m", "relay_client", "tensorboard", "--hc", connection_name, "--runs", "all"]
    )


def complain(body: dict) -> int:
    """Print the problems found in a job, and return the exit status."""
    problems = find_problems(body)
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--is-debug", choices=["true", "false"], default="false", type=str.lower)
    parser.add_argument("--debug-relay-connection-name", metavar="NAME", help="name of your hybrid connection")
    parser.add_argument(
        "--debug-port",
        type=int,
        default=FIRST_PORT,
        metavar="PORT",
        help="port of the first step (default: %(default)s)",
    )
    parser.add_argument(
        "--debug-relay-connection-string-secret",
        metavar="NAME",
        help="Key Vault secret that contains the connection string",
    )
    parser.add_argument(
        "--key-vault-url",
        default=os.environ.get("KEY_VAULT_URL"),
        help="URL of the Key Vault (default: KEY_VAULT_URL, or else the workspace's own vault)",
    )
    parser.add_argument(
        "--tensorboard",
        choices=["true", "false"],
        default="false",
        type=str.lower,
        help="start TensorBoard on this machine, with the curves of the debug run",
    )
    parser.add_argument(
        "--compute", default="cpu-cluster", metavar="NAME", help="compute cluster (default: %(default)s)"
    )
    parser.add_argument(
        "--wheel", type=Path, metavar="FILE", help="wheel of relay-debug for the image (default: build one)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="print the REST body and the build context")
    how.add_argument("--local", action="store_true", help="run the steps on this machine")
    options = parser.parse_args()
    options.is_debug = options.is_debug == "true"
    options.tensorboard = options.tensorboard == "true"
    if options.tensorboard and (not options.is_debug or options.local or options.dry_run):
        parser.error("--tensorboard true requires a debug run on Azure ML: add --is-debug true")
    if options.is_debug and not options.debug_relay_connection_name:
        parser.error("a debug run needs --debug-relay-connection-name")
    return options


def build_job(options: argparse.Namespace, context: Path) -> "PipelineJob":
    """Return the pipeline job for these options, with an image from this build context."""
    job = build_pipeline(
        compute=options.compute,
        first_port=options.debug_port,
        key_vault_url=options.key_vault_url,
        is_debug=options.is_debug,
        connection_name=options.debug_relay_connection_name,
        connection_string_secret=options.debug_relay_connection_string_secret,
        build_context=context,
    )
    if options.is_debug:
        prepare_debug_run(job)
    return job


VAULT_HINT = """\
submit.py: the job reads its secret from the workspace's own Key Vault, {url}
  if that vault uses roles, assign Key Vault Secrets User on the secret to the cluster's identity
  if it uses access policies, run:
  az keyvault set-policy -n {name} --object-id <identity of the cluster> --secret-permissions get
  to find out which of these it uses, run: az keyvault show -n {name} --query properties.enableRbacAuthorization"""


def connect() -> "MLClient":
    """Return a client for the workspace in config.json."""
    from azure.ai.ml import MLClient  # noqa: PLC0415 - neither this package nor a login is needed to run locally
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415

    return MLClient.from_config(DefaultAzureCredential())


def vault_of_workspace(ml_client: "MLClient") -> str:
    """Return the URL of the workspace's own Key Vault; the API returns only its resource id."""
    resource_id = ml_client.workspaces.get(ml_client.workspace_name).key_vault
    return f"https://{resource_id.rsplit('/', 1)[1]}.vault.azure.net/"


def vault_name(url: str) -> str:
    """Return the name of a Key Vault, given its URL."""
    return url.removeprefix("https://").partition(".")[0]


if __name__ == "__main__":
    sys.exit(main())
