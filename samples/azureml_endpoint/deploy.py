"""Create the endpoint, then deploy to it. In between, give the endpoint's identity access to the secret.

    python deploy.py endpoint                                                         create it, and print its identity
    python deploy.py deployment                                                       create an ordinary deployment
    python deploy.py deployment --is-debug true --debug-relay-connection-name myhc    create one that can be debugged
    python deploy.py deployment ... --dry-run                                         print it as YAML, and stay offline
    python deploy.py deployment ... --local                                           run it in Docker on this machine

config.json, which you can download from the studio, selects the workspace.
"""

import argparse
import hashlib
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from azure.ai.ml.entities import (
    BuildContext,
    CodeConfiguration,
    Environment,
    ManagedOnlineDeployment,
    ManagedOnlineEndpoint,
    Model,
    OnlineRequestSettings,
    ProbeSettings,
)

if TYPE_CHECKING:
    from azure.ai.ml import MLClient

HERE = Path(__file__).resolve().parent
IMAGE = HERE / "image"
HOUR = 60 * 60
LONGEST_REQUEST_MS = 180_000
"""Azure ML's limit: a request times out after three minutes, even while it is stopped at a breakpoint."""

sys.path.append(str(HERE.parent / "shared"))
from build_wheel import build_context, describe  # noqa: E402

logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)  # it warns about its own experimental classes


def main() -> int:
    """Run the command and return the exit status."""
    options = parse_arguments()
    ml_client = None if options.dry_run else connect()
    options.endpoint = options.endpoint or default_name(ml_client)
    if ml_client and options.what == "endpoint":
        return make_endpoint(ml_client, options.endpoint)
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        context = build_context(IMAGE, Path(folder), options.wheel)
        deployment = build_deployment(options, context)
        if ml_client:
            return deploy_here(ml_client, deployment) if options.local else deploy(ml_client, deployment)
        deployment.dump(sys.stdout)
        print("# build context of the image:")
        print(*(f"#   {name} sha256:{digest}" for name, digest in describe(context).items()), sep="\n")
    return 0


def default_name(ml_client: "MLClient | None") -> str:
    """Return an endpoint name derived from the workspace, which makes it stable and unique in the region."""
    if ml_client is None:
        return "circle-dry-run"
    workspace = f"{ml_client.subscription_id}/{ml_client.resource_group_name}/{ml_client.workspace_name}"
    return f"circle-{hashlib.sha256(workspace.lower().encode()).hexdigest()[:8]}"


def make_endpoint(ml_client: "MLClient", name: str) -> int:
    """Create the endpoint if it does not exist, and print the identity of its deployments."""
    from azure.core.exceptions import ResourceNotFoundError  # noqa: PLC0415 - it comes with the SDK

    try:
        endpoint = ml_client.online_endpoints.get(name)
    except ResourceNotFoundError:
        wanted = ManagedOnlineEndpoint(name=name, auth_mode="key")
        endpoint = ml_client.online_endpoints.begin_create_or_update(wanted).result()
    print(f"endpoint: {name}\nidentity: {endpoint.identity.principal_id}")
    return 0


def deploy(ml_client: "MLClient", deployment: ManagedOnlineDeployment) -> int:
    """Deploy to an existing endpoint, and print its URL."""
    from azure.core.exceptions import ResourceNotFoundError  # noqa: PLC0415 - it comes with the SDK

    try:
        endpoint = ml_client.online_endpoints.get(deployment.endpoint_name)
    except ResourceNotFoundError:
        print(
            f"deploy.py: error: the workspace has no endpoint '{deployment.endpoint_name}'. "
            f"hint: run 'python deploy.py endpoint --endpoint {deployment.endpoint_name}'",
            file=sys.stderr,
        )
        return 1
    ml_client.online_deployments.begin_create_or_update(deployment).result()
    print(endpoint.scoring_uri)
    return 0


def deploy_here(ml_client: "MLClient", deployment: ManagedOnlineDeployment) -> int:
    """Run endpoint and deployment in a container on this machine, and print its URL."""
    endpoint = ManagedOnlineEndpoint(name=deployment.endpoint_name)
    ml_client.online_endpoints.begin_create_or_update(endpoint, local=True)
    # The container has no identity that may read a Key Vault, so it gets the connection string itself.
    if secret := os.environ.get("RELAY_CONNECTION_STRING"):
        deployment.environment_variables = {**deployment.environment_variables, "RELAY_CONNECTION_STRING": secret}
    ml_client.online_deployments.begin_create_or_update(deployment, local=True)
    print(ml_client.online_endpoints.get(deployment.endpoint_name, local=True).scoring_uri)
    return 0


def connect() -> "MLClient":
    """Return a client for the workspace in config.json."""
    from azure.ai.ml import MLClient  # noqa: PLC0415 - not needed for a dry run
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415

    return MLClient.from_config(DefaultAzureCredential())


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["endpoint", "deployment"], help="create the endpoint, or deploy to it")
    parser.add_argument("--is-debug", choices=["true", "false"], default="false", type=str.lower)
    parser.add_argument("--debug-relay-connection-name", metavar="NAME", help="name of your hybrid connection")
    parser.add_argument(
        "--debug-port", type=int, default=5678, metavar="PORT", help="port in your launch.json (default: %(default)s)"
    )
    parser.add_argument(
        "--debug-relay-connection-string-secret",
        metavar="NAME",
        help="Key Vault secret that contains the connection string",
    )
    parser.add_argument(
        "--key-vault-url", default=os.environ.get("KEY_VAULT_URL"), help="URL of the Key Vault (default: KEY_VAULT_URL)"
    )
    parser.add_argument(
        "--endpoint", metavar="NAME", help="endpoint name, unique in the region (default: derived from the workspace)"
    )
    parser.add_argument(
        "--wheel", type=Path, metavar="FILE", help="wheel of relay-debug for the image (default: build one)"
    )
    parser.add_argument("--instances", type=int, default=1, metavar="NUMBER", help="default: %(default)s")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="print the deployment and the build context of its image")
    how.add_argument("--local", action="store_true", help="run the deployment in Docker on this machine")
    options = parser.parse_args()
    options.is_debug = options.is_debug == "true"
    if options.is_debug and not options.debug_relay_connection_name:
        parser.error("a debug deployment needs --debug-relay-connection-name")
    if options.what == "endpoint" and (options.dry_run or options.local):
        parser.error("--dry-run and --local are available for deployments only; creating an endpoint requires Azure")
    return options


def build_deployment(options: argparse.Namespace, context: Path) -> ManagedOnlineDeployment:
    """Return the deployment for these options, with an image from this build context."""
    deployment = ManagedOnlineDeployment(
        name="debug" if options.is_debug else "blue",
        endpoint_name=options.endpoint,
        model=Model(path=HERE / "model"),
        code_configuration=CodeConfiguration(code=str(HERE / "code"), scoring_script="score.py"),
        environment=Environment(build=BuildContext(path=context)),
        instance_type="Standard_DS2_v2",
        instance_count=options.instances,
    )
    if options.is_debug:
        prepare_debug_deployment(deployment, options)
    return deployment


def prepare_debug_deployment(deployment: ManagedOnlineDeployment, options: argparse.Namespace) -> None:
    """Enable debugging, and set timeouts that allow a worker to stay at a breakpoint for an hour."""
    variables = {
        "RELAY_DEBUG": "true",
        "RELAY_DEBUG_CONNECTION_NAME": options.debug_relay_connection_name,
        "RELAY_DEBUG_PORT": str(options.debug_port),
        "RELAY_DEBUG_CONNECTION_STRING_SECRET": options.debug_relay_connection_string_secret,
        "KEY_VAULT_URL": options.key_vault_url,
        "WORKER_COUNT": "1",  # a second worker would need the same port
        "WORKER_TIMEOUT": str(HOUR),  # the server terminates an unresponsive worker, by default after 5 minutes
    }
    deployment.environment_variables = {name: value for name, value in variables.items() if value}
    deployment.request_settings = OnlineRequestSettings(
        request_timeout_ms=LONGEST_REQUEST_MS, max_concurrent_requests_per_instance=1
    )
    # A worker at a breakpoint does not answer probes, and a container that fails its liveness probe is restarted.
    deployment.liveness_probe = ProbeSettings(period=60, timeout=2, failure_threshold=HOUR // 60, initial_delay=10)


if __name__ == "__main__":
    sys.exit(main())
