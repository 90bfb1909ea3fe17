"""Facts about the question `env`, which returns the environment variables of a process without secrets."""

import pytest

from relay_agent.debuggee import environment
from relay_agent.debuggee.environment import is_secret, read_environment
from relay_core.agent_api.questions import Environment, ReadEnvironment


@pytest.mark.parametrize(
    "name",
    [
        *("API_KEY", "OPENAI_APIKEY", "HF_TOKEN", "client_secret", "PGPASSWORD", "DB_PASSWD", "MYSQL_PWD", "MY_KEYS"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "RELAY_CONNECTION_STRING", "SAS", "BLOB_SAS", "NETRC_AUTH", "apiKeyOld"),
    ],
)
def test_secret_names(name: str) -> None:
    """A variable whose name contains a word for a secret is one."""
    assert is_secret(name, "x")


@pytest.mark.parametrize(
    "value",
    [
        "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=abc;EntityPath=hc",
        "https://user:word@example.org/simple",
        "https://x.blob.core.windows.net/c?sv=2022&sig=abc",
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=abc",
        "-----BEGIN PRIVATE KEY-----",
        f"ghp_{'x' * 36}",
        f"xoxb-{'1' * 12}-{'x' * 12}",
        "python train.py --password hunter2 --epochs 3",
        "train --api-key abc",
        "Authorization: Basic dXNlcjp3b3Jk",
        "curl -H 'X: basic dXNlcjp3b3Jk'",
        '{"aws_access_key_id": "a", "aws_secret_access_key": "b"}',
        '{"password": "hunter2"}',
        "api-key=abc",
    ],
)
def test_secret_values(value: str) -> None:
    """A value in the form of a secret is one, whatever the name of the variable is."""
    assert is_secret("SETTING", value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("PWD", "/work"), ("OLDPWD", "/"), ("AUTHOR", "x"), ("KEYBOARD", "us"), ("TOKENIZERS_PARALLELISM", "false")),
        *(("MASTER_ADDR", "node-0"), ("PATH", "/usr/bin:/bin"), ("MLFLOW_TRACKING_URI", "azureml://east/mlflow")),
        *(("ARGS", "--tokenizer fast --keyboard us"), ("MODE", "basic training"), ("LIBRARY", "/x/sk-learn")),
    ],
)
def test_ordinary_variables(name: str, value: str) -> None:
    """Variables that only resemble secrets are shown."""
    assert not is_secret(name, value)


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long value is cut, and variables that exceed the limits are counted instead."""
    monkeypatch.setattr(environment.os, "environ", {"A": "x" * 5000, "B": "1", "C": "2"})
    monkeypatch.setattr(environment, "MAX_VARIABLES", 2)
    assert Environment({"A": "x" * 4096 + "...", "B": "1"}, 1) == read_environment(ReadEnvironment())
    monkeypatch.setattr(environment, "MAX_CHARACTERS", 100)
    assert Environment({}, 3) == read_environment(ReadEnvironment())
