"""Entry points of the console scripts. Ctrl-C ends a program silently while it imports its modules."""

try:
    import importlib
    import signal
except KeyboardInterrupt:
    raise SystemExit(130) from None  # `relay_core.exit_codes.INTERRUPTED`, which would be one import more


def agent() -> None:
    """Run `relay-agent`."""
    _run("relay_agent.cli")


def client() -> None:
    """Run `relay-client`."""
    _run("relay_client.cli")


def server() -> None:
    """Run `relay-server`."""
    _run("relay_server.cli")


def _run(module: str) -> None:
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:  # a shell lets a command in the background ignore the signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = importlib.import_module(module)
    signal.signal(signal.SIGINT, interrupt)
    program.run()
