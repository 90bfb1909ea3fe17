"""Runs the real azure-cli without the second that its start takes: a process that has imported it forks for each call.

Runs on the interpreter of .azure-cli (see `tests.support.machine.fork_server`). One connection is one call:

    --> a line of JSON {"argv", "env", "cwd", "out", "err"}   <-- a line with the exit status

`out` and `err` are files for the output. The child becomes `python -m azure.cli`, with the environment that was given.
"""

import importlib
import os
import runpy
import sys

from tests.support.machine.fork_server import prepare, serve

PRELOADED = (
    "azure.cli.command_modules.keyvault._client_factory",
    "azure.cli.command_modules.keyvault._params",
    "azure.cli.command_modules.keyvault.commands",
    "azure.cli.command_modules.keyvault.custom",
    "azure.cli.command_modules.profile.custom",
    "azure.cli.command_modules.relay._params",
    "azure.cli.command_modules.relay.aaz.latest.relay",
    "azure.cli.command_modules.relay.aaz.latest.relay.hyco.authorization_rule",
    "azure.cli.command_modules.relay.aaz.latest.relay.namespace.authorization_rule",
    "azure.cli.command_modules.relay.aaz.latest.relay.wcfrelay.authorization_rule",
    "azure.cli.command_modules.relay.commands",
    "azure.cli.command_modules.relay.custom",
    "azure.cli.command_modules.resource._params",
    "azure.cli.command_modules.resource.commands",
    "azure.cli.command_modules.resource.custom",
    "azure.cli.command_modules.resource.policy",
    "azure.cli.command_modules.role._params",
    "azure.cli.command_modules.role.commands",
    "azure.cli.command_modules.role.custom",
    "azure.cli.core._help",
    "azure.cli.core._output",
    "azure.cli.core.aaz",
    "azure.cli.core.aaz._http_policy",
    "azure.cli.core.auth.binary_cache",
    "azure.cli.core.auth.identity",
    "azure.cli.core.azlogging",
    "azure.cli.core.commands.arm",
    "azure.cli.core.commands.command_operation",
    "azure.cli.core.commands.transform",
    "azure.cli.core.intercept_survey",
    "azure.cli.core.sdk.policies",
    "azure.core.pipeline.transport._requests_basic",
    "azure.keyvault.keys.crypto",
    "azure.keyvault.secrets",
    "azure.mgmt.authorization",
    "azure.mgmt.keyvault",
    "azure.mgmt.resource.deployments",
    "azure.mgmt.resource.deploymentstacks",
    "azure.mgmt.resource.features",
    "azure.mgmt.resource.locks",
    "azure.mgmt.resource.locks.v2016_09_01",
    "azure.mgmt.resource.managedapplications",
    "azure.mgmt.resource.resources",
    "azure.mgmt.resource.resources.v2024_11_01",
    "azure.mgmt.resource.templatespecs",
    "jmespath",
    "msal",
    "msrest",
    "msrest.polling",
    "requests",
    "yaml",
)
"""What commands spend most of their start with; AZURE_CONFIG_DIR is read by these imports, once."""


for each in PRELOADED:
    importlib.import_module(each)
CONNECTION, CALL = serve()
prepare(CALL["out"], CALL["err"], CALL["env"], CALL["cwd"])
sys.argv = ["az", *CALL["argv"]]
STATUS = 1
try:
    runpy.run_module("azure.cli", run_name="__main__", alter_sys=True)
    STATUS = 0
except SystemExit as end:
    STATUS = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
finally:
    sys.stdout.flush()
    sys.stderr.flush()
    CONNECTION.sendall(f"{STATUS}\n".encode())
    os._exit(0)
