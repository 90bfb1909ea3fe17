"""Submit the pipeline, print what would be submitted, or run its steps on this machine.

    python submit.py                                                          on Azure ML
    python submit.py --is-debug true --debug-relay-connection-name myhc       the same, waiting for your debugger
    python submit.py ... --dry-run                                            print the REST body, contact nobody
    python submit.py ... --local                                              run here, through a relay of its own

The workspace is the one in config.json, which the studio offers for download.
"""

import argparse
import json
import logging
import os
import sys
from typing import TYPE_CHECKING

from local_run import run_locally
from pipeline import FIRST_PORT, build_pipeline

from relay_agent.azureml import find_problems, prepare_debug_run, rest_body

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.ai.ml.entities import PipelineJob

logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)  # it warns of its own experimental classes


def main() -> int:
    """Do what the command line says, and return the exit status."""
    options = parse_arguments()
    ml_client = None if options.dry_run or options.local else connect()
    if ml_client and options.debug_relay_connection_string_secret and not options.key_vault_url:
        options.key_vault_url = vault_of_workspace(ml_client)
    job = build_job(options)
    body = rest_body(job)
    problems = find_problems(body)
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    if options.local:
        return run_locally(body, options.debug_relay_connection_name if options.is_debug else None)
    if ml_client is None:
        print(json.dumps(body, indent=2))
        return 0
    print(ml_client.jobs.create_or_update(job, experiment_name="circle").studio_url)
    return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--is-debug", choices=["true", "false"], default="false", type=str.lower)
    parser.add_argument("--debug-relay-connection-name", metavar="NAME", help="your hybrid connection")
    parser.add_argument(
        "--debug-port", type=int, default=FIRST_PORT, metavar="PORT", help="port of the first step (%(default)s)"
    )
    parser.add_argument(
        "--debug-relay-connection-string-secret", metavar="NAME", help="Key Vault secret with the connection string"
    )
    parser.add_argument(
        "--key-vault-url", default=os.environ.get("KEY_VAULT_URL"), help="default: KEY_VAULT_URL, then the workspace's"
    )
    parser.add_argument("--compute", default="cpu-cluster", metavar="NAME", help="a compute cluster (%(default)s)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="print the REST body")
    how.add_argument("--local", action="store_true", help="run the steps on this machine")
    options = parser.parse_args()
    options.is_debug = options.is_debug == "true"
    if options.is_debug and not options.debug_relay_connection_name:
        parser.error("a debug run needs --debug-relay-connection-name")
    return options


def build_job(options: argparse.Namespace) -> "PipelineJob":
    """Return the pipeline job that the command line asks for."""
    job = build_pipeline(
        compute=options.compute,
        first_port=options.debug_port,
        key_vault_url=options.key_vault_url,
        is_debug=options.is_debug,
        connection_name=options.debug_relay_connection_name,
        connection_string_secret=options.debug_relay_connection_string_secret,
    )
    if options.is_debug:
        prepare_debug_run(job)
    return job


def connect() -> "MLClient":
    """Return a client for the workspace that config.json names."""
    from azure.ai.ml import MLClient  # noqa: PLC0415 - neither this nor a login is needed to run locally
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415

    return MLClient.from_config(DefaultAzureCredential())


def vault_of_workspace(ml_client: "MLClient") -> str:
    """Return the URL of the workspace's own Key Vault; the API gives its resource id."""
    resource_id = ml_client.workspaces.get(ml_client.workspace_name).key_vault
    return f"https://{resource_id.rsplit('/', 1)[1]}.vault.azure.net/"


if __name__ == "__main__":
    sys.exit(main())
