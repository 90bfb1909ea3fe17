"""The failures of the documents that can be provoked without Azure, each compared with what the programs print then."""

from __future__ import annotations

from contextlib import AsyncExitStack

from relay_client.dap import DapClient
from relay_server.config.model import Limits
from tests.rehearsal.guide import PORTS, STEPS, WITH_KEY_VAULT
from tests.rehearsal.walk import IN_PREPARE, PREPARE, Cloud, Walk
from tests.samples.kit import Running, line_of
from tests.support.azure.az_shim.kit import USER
from tests.support.azure.entra import LISTENER, RELAY, VAULT
from tests.support.azure.network import ENTRA_HOST, VAULT_HOST
from tests.support.machine.deadline import DEADLINE
from tests.support.network.impostor import impostor

NAMESPACE = "contoso-debug.servicebus.windows.net"
RENDEZVOUS = "g13-prod-am3-012-sb.servicebus.windows.net"
SCRIPT = "infra/create_relay.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv"
AGENT = "relay-agent serve --hc alice --key-vault contoso-kv --connection-string-secret relay-alice-agent --port {}"
BY_KEY = "--hc alice --key-vault contoso-kv --connection-string-secret relay-alice-client"
BY_ENTRA = "--hc alice --namespace contoso-debug"


async def provoke(walk: Walk) -> None:
    """Provoke each failure; each leaves everything as it was."""
    for failure in (
        *(no_principal, unknown_error),
        *(wrong_identities, no_role, no_policy),
        *(no_selection, blocked_rendezvous, too_many_listeners, refused_tokens, late_role, impostor_of_relay),
        *(nobody_attaches, unknown_node, grey_breakpoint),
    ):
        await failure(walk)


async def run(walk: Walk, command: str, **variables: str) -> tuple[str, int]:
    """Type a command, and return what it printed and its exit code."""
    async with walk.shell.running(command, **variables) as typed:
        code = await typed.finish()
    return typed.output, code


async def job_log(walk: Walk, cloud: Cloud, name: str, more: str = "", step: str = "prepare", **variables: str) -> str:
    """Run a step that no debugger attaches to until its end, which must be good."""
    async with walk.job(cloud, step, name, more, **variables) as job:
        assert 0 == await job.finish(), job.output
    return job.output


async def listening(walk: Walk, cloud: Cloud, agents: AsyncExitStack, port: int) -> Running:
    """Run an agent on the cluster until it is listening."""
    agent = await agents.enter_async_context(walk.shell.running(AGENT.format(port), **cloud.identity.azure_ml()))
    await agent.line("listening on")
    return agent


# --- the scripts ---


async def no_principal(walk: Walk) -> None:
    with walk.report.step("the cluster has no identity") as answer:
        output, code = await run(walk, f"{SCRIPT} --agent-principal ''")
        walk.documents.compare(answer, "`the object id for --agent-principal is empty`", output, code)


async def unknown_error(walk: Walk) -> None:
    with walk.report.step("az reports an error that no script knows") as answer:
        walk.shell.azure.inject("group exists", "(SomethingNew) The service has changed.")
        output, code = await run(walk, SCRIPT)
        walk.documents.compare(answer, "Errors from Key Vault and Resource Manager", output, code)


# --- identities ---


async def wrong_identities(walk: Walk) -> None:
    for what, client, row in (
        ("the node's endpoint does not know the identity that Azure ML names", "unknown-client", "In a job, `DEFAULT_"),
        ("the node has no identity yet", "", "If a cluster receives its identity"),
    ):
        async with walk.cloud() as cloud:
            with walk.report.step(what) as answer:
                cloud.identity.known_client = "another-client"
                log = await job_log(walk, cloud, f"identity-{client}", DEFAULT_IDENTITY_CLIENT_ID=client)
                walk.documents.compare(answer, row, log)


async def no_role(walk: Walk) -> None:
    async with walk.cloud() as cloud:
        with walk.report.step("Key Vault does not know the job's role") as answer:
            cloud.azure.issuer.roles[VAULT] = []
            log = await job_log(walk, cloud, "role")
            walk.documents.compare(answer, "A role on one secret is enough", log)
            walk.documents.compare(answer, "`is not permitted to read secret", log)


async def no_policy(walk: Walk) -> None:
    async with walk.cloud() as cloud:
        with walk.report.step("Key Vault's access policies do not allow it") as answer:
            cloud.azure.vault.forbidden = "ForbiddenByPolicy"
            log = await job_log(walk, cloud, "policy")
            walk.documents.compare(answer, "In a vault with access policies", log)


# --- the relay ---


async def no_selection(walk: Walk) -> None:
    async with walk.cloud(honour_listener_selection=False) as cloud, AsyncExitStack() as agents:
        with walk.report.step("the relay ignores which listener is selected") as answer:
            for port in (walk.first, walk.first + 1):
                await listening(walk, cloud, agents, port)
            async with walk.shell.running(f"relay-client --verbose {BY_KEY} --ports {walk.ports}") as client:
                await client.line("(421)")
            walk.documents.compare(answer, "A WebSocket sender can select a listener", client.output)


async def blocked_rendezvous(walk: Walk) -> None:
    """The way out leads to the namespace, and not to the host where agent and client meet."""
    async with walk.cloud(public_address=f"{RENDEZVOUS}:443") as cloud, AsyncExitStack() as agents:
        with walk.report.step("the hosts of the rendezvous are blocked") as answer:
            agent = await listening(walk, cloud, agents, walk.first)
            output, code = await run(walk, WITH_KEY_VAULT.replace(PORTS, walk.ports))
            await agent.line("cannot serve a client")
            for start in ("The connection that the relay joins", "the agent logs `listening on`"):
                walk.documents.compare(answer, start, agent.output + output, code)


async def too_many_listeners(walk: Walk) -> None:
    async with walk.cloud(limits=Limits(max_listeners=1)) as cloud, AsyncExitStack() as agents:
        with walk.report.step("the hybrid connection has no free listener") as answer:
            await listening(walk, cloud, agents, walk.first)
            output, code = await run(walk, AGENT.format(walk.first + 1), **cloud.identity.azure_ml())
            walk.documents.compare(answer, "A hybrid connection has at most 25 listeners", output, code)


async def refused_tokens(walk: Walk) -> None:
    async with walk.cloud(jwt_issuers=()):
        with walk.report.step("the relay refuses the tokens of Entra ID") as answer:
            explained, _ = await run(walk, f"relay-client {BY_ENTRA} --explain-auth")
            output, code = await run(walk, f"relay-client targets {BY_ENTRA}")
            walk.documents.compare(answer, "Entra ID tokens are accepted", explained + output, code)


async def late_role(walk: Walk) -> None:
    async with walk.cloud() as cloud:
        with walk.report.step("the laptop's role is not effective yet") as answer:
            tokens = walk.shell.azure.load()["tokens"]
            token = cloud.azure.issuer.token(RELAY, oid=USER, roles=[LISTENER])
            walk.shell.azure.change(tokens={**tokens, RELAY: {**tokens[RELAY], "accessToken": token}})
            output, code = await run(walk, f"relay-client targets {BY_ENTRA}")
            walk.documents.compare(answer, "Roles take effect within 5 minutes", output, code)


async def impostor_of_relay(walk: Walk) -> None:
    names = (NAMESPACE, VAULT_HOST, ENTRA_HOST)
    async with walk.cloud() as cloud, impostor(walk.certificates, b"hello\r\n\r\n", *names) as port:
        with walk.report.step("the relay answers an unexpected request otherwise") as answer:
            cloud.azure.proxy.routes[NAMESPACE] = port
            output, code = await run(walk, f"relay-client doctor {BY_KEY}")
            walk.documents.compare(answer, "The service answers an upgrade request", output, code)


# --- the job ---


async def nobody_attaches(walk: Walk) -> None:
    async with walk.cloud() as cloud:
        with walk.report.step("nobody attaches in time") as answer:
            log = await job_log(walk, cloud, "nobody-attaches", "--debug-wait 1s")
            walk.documents.compare(answer, "`no debugger attached within", log)


async def unknown_node(walk: Walk) -> None:
    async with walk.cloud() as cloud:
        with walk.report.step("a parallel step does not know its node") as answer:
            place = {"NO_PLACE": "1", "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"}
            log = await job_log(walk, cloud, "nobody-attaches", step="featurize", **place)
            walk.documents.compare(answer, "`AZ_BATCH_IS_CURRENT_NODE_MASTER`", log)


async def grey_breakpoint(walk: Walk) -> None:
    """Attach with a remoteRoot that is not where the job runs."""
    block = WITH_KEY_VAULT.replace(PORTS, walk.ports)
    mapping = {"localRoot": str(STEPS), "remoteRoot": "/elsewhere"}
    wanted = {str(PREPARE): [{"line": line_of(PREPARE, IN_PREPARE)}]}
    with walk.report.step("the job's code is in another folder") as answer:
        async with walk.cloud() as cloud, walk.shell.running(block) as client:
            await client.line("relay-client: ready")
            async with (
                walk.job(cloud, "prepare", "grey") as job,
                await DapClient.connect("127.0.0.1", walk.first, within=DEADLINE) as debugger,
            ):
                ((found,),) = (await debugger.attach(wanted, within=DEADLINE, pathMappings=[mapping])).values()
                assert 0 == await job.finish()
        assert not found["verified"]
        walk.documents.compare(answer, "A step starts in the folder", found["message"])
