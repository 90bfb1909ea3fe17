"""Deploy the endpoint, or print what would be deployed.

    python deploy.py                                                       an ordinary deployment
    python deploy.py --is-debug true --debug-relay-connection-name myhc    one that a debugger can attach to
    python deploy.py ... --dry-run                                         print it as YAML, contact nobody

The workspace is the one in config.json, which the studio offers for download.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from azure.ai.ml.entities import (
    CodeConfiguration,
    Environment,
    ManagedOnlineDeployment,
    ManagedOnlineEndpoint,
    Model,
    OnlineRequestSettings,
    ProbeSettings,
)

HERE = Path(__file__).resolve().parent
HOUR = 60 * 60
LONGEST_REQUEST_MS = 180_000
"""Azure ML's limit: a caller is answered with a time-out after three minutes, also while you look at variables."""

logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)  # it warns of its own experimental classes


def main() -> int:
    """Do what the command line says, and return the exit status."""
    options = parse_arguments()
    deployment = build_deployment(options)
    if options.dry_run:
        deployment.dump(sys.stdout)
        return 0
    from azure.ai.ml import MLClient  # noqa: PLC0415 - not needed for a dry run
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415

    ml_client = MLClient.from_config(DefaultAzureCredential())
    ml_client.online_endpoints.begin_create_or_update(ManagedOnlineEndpoint(name=options.endpoint)).result()
    ml_client.online_deployments.begin_create_or_update(deployment).result()
    print(ml_client.online_endpoints.get(options.endpoint).scoring_uri)
    return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--is-debug", choices=["true", "false"], default="false", type=str.lower)
    parser.add_argument("--debug-relay-connection-name", metavar="NAME", help="your hybrid connection")
    parser.add_argument(
        "--debug-port", type=int, default=5678, metavar="PORT", help="your launch.json names it (%(default)s)"
    )
    parser.add_argument(
        "--debug-relay-connection-string-secret", metavar="NAME", help="Key Vault secret with the connection string"
    )
    parser.add_argument("--key-vault-url", default=os.environ.get("KEY_VAULT_URL"), help="default: KEY_VAULT_URL")
    parser.add_argument("--endpoint", default="circle", metavar="NAME", help="name of the endpoint (%(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="print the deployment")
    options = parser.parse_args()
    options.is_debug = options.is_debug == "true"
    if options.is_debug and not options.debug_relay_connection_name:
        parser.error("a debug deployment needs --debug-relay-connection-name")
    return options


def build_deployment(options: argparse.Namespace) -> ManagedOnlineDeployment:
    """Return the deployment that the command line asks for."""
    deployment = ManagedOnlineDeployment(
        name="debug" if options.is_debug else "blue",
        endpoint_name=options.endpoint,
        model=Model(path=HERE / "model"),
        code_configuration=CodeConfiguration(code=str(HERE / "code"), scoring_script="score.py"),
        environment=Environment(
            image="mcr.microsoft.com/azureml/openmpi5.0-ubuntu24.04", conda_file=HERE / "conda.yaml"
        ),
        instance_type="Standard_DS2_v2",
        instance_count=1,
    )
    if options.is_debug:
        prepare_debug_deployment(deployment, options)
    return deployment


def prepare_debug_deployment(deployment: ManagedOnlineDeployment, options: argparse.Namespace) -> None:
    """Let it offer its debugger, and let nobody end it while it stands at a breakpoint."""
    variables = {
        "RELAY_DEBUG": "true",
        "RELAY_DEBUG_CONNECTION_NAME": options.debug_relay_connection_name,
        "RELAY_DEBUG_PORT": str(options.debug_port),
        "RELAY_DEBUG_CONNECTION_STRING_SECRET": options.debug_relay_connection_string_secret,
        "KEY_VAULT_URL": options.key_vault_url,
        "WORKER_COUNT": "1",  # a second worker would want the same port
        "WORKER_TIMEOUT": str(HOUR),  # the server ends a worker that is silent for longer, by default after 5 minutes
    }
    deployment.environment_variables = {name: value for name, value in variables.items() if value}
    deployment.request_settings = OnlineRequestSettings(
        request_timeout_ms=LONGEST_REQUEST_MS, max_concurrent_requests_per_instance=1
    )
    # A worker at a breakpoint answers no probe, and a container that fails its liveness probe is restarted.
    deployment.liveness_probe = ProbeSettings(period=60, timeout=2, failure_threshold=HOUR // 60, initial_delay=10)


if __name__ == "__main__":
    sys.exit(main())
