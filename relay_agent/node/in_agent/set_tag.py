"""Sets or deletes a tag of an MLflow run: `python -m relay_agent.node.in_agent.set_tag RUN KEY [VALUE]`.

This is a separate program, because importing mlflow takes seconds and 200 MB, which the agent should not keep. The
address and the credentials of the server are in the environment, as MLflow reads them.
"""

from __future__ import annotations

import sys


def main(run: str, key: str, value: str | None = None) -> int:
    """Set the tag, or delete it if no value is given; return 0, or 1 after an error, whose type is printed.

    The text of an error is not printed: it may contain what was sent to the server.
    """
    try:
        from mlflow import MlflowClient  # noqa: PLC0415 - its errors are handled here

        client = MlflowClient()
        if value is not None:
            client.set_tag(run, key, value)
        elif key in client.get_run(run).data.tags:
            client.delete_tag(run, key)
    except Exception as error:  # noqa: BLE001 - MLflow's plugins may raise any exception
        print(type(error).__name__)  # noqa: T201 - read by `run_tag`
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
