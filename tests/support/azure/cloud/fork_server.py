"""Runs the real azure-cli without the second that its start takes: a process that has imported it forks for each call.

Runs on the interpreter of .azure-cli with a Unix socket as its standard input. One connection is one call:

    --> a line of JSON {"argv", "env", "cwd", "out", "err"}   <-- a line with the exit status

`out` and `err` are files for the output. The child becomes `python -m azure.cli`, with the environment that was given.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys

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


def main():
    listener = socket.socket(fileno=0)
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or each child would touch, and so copy, all of it
    signal.signal(signal.SIGCHLD, reap)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        become_az(connection)


def reap(*_):
    """Take leave of the children that have ended, at once: a test looks for processes that it has left behind."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def become_az(connection):
    """Run one call, send its exit status, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection.makefile("r") as stream:
        call = json.loads(stream.readline())
    redirect(call["out"], call["err"])
    os.environ.clear()
    os.environ.update(call["env"])
    os.chdir(call["cwd"])
    sys.argv = ["az", *call["argv"]]
    status = 1
    try:
        runpy.run_module("azure.cli", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(f"{status}\n".encode())
        os._exit(0)


def redirect(out, err):
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        os.dup2(os.open(path, flags), number)


main()
