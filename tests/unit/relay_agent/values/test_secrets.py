"""Facts about what counts as a secret."""

import pytest

from relay_agent.values.secrets import is_secret, secrets_of_environment


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
    "name",
    [
        *("password", "secret", "auth", "sas", "cookie", "authorization", "connection_string", "db.conn_str", "jwt"),
        *("api_key", "apiKey", "SharedAccessKey", "AccountKey", "private_key", "hf_token", "githubToken", "authkey"),
    ],
)
def test_names_of_secrets_only(name: str) -> None:
    """A variable of a program whose name is that of a secret only is one, even if its value is a word."""
    assert is_secret(name, "word", is_in_program=True)


@pytest.mark.parametrize("name", ["key", "keys", "token", "tokens", "sortKey", "signature", "pat"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(("the", False), ("layers.0.weight", False), ("<pad>", False), ("/data/train.csv", False), ("a 1x", False)),
        # the price: a weak password of letters, or with the separators of a path
        *(("letmein", False), ("hunter.2", False)),
        *(("hunter2", True), ("123456", True), ("p4ssword", True), ("LetMeIn", True), ("abcdefghijklmnop", True)),
        *(("x=y&z=0", True), ("\ufffd" * 9, True), ("\0" * 9, True), ("beef-1234-aa12-bbcc", True)),
    ],
)
def test_ambiguous_names(name: str, value: str, *, expected: bool) -> None:
    """A variable called `key` or `token` is a secret in the environment, but in a program not if it is a word."""
    assert is_secret(name, value)
    assert expected == is_secret(name, value, is_in_program=True)


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


def test_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of secret variables are known, but for those that are so short that ordinary texts contain them."""
    for name, value in {
        "HF_TOKEN": "abcdefgh",
        "API_KEY": "no",
        "MODEL": "resnet-50",
        "URL": "https://u:p@host",
    }.items():
        monkeypatch.setenv(name, value)
    found = secrets_of_environment()
    assert {"abcdefgh", "https://u:p@host"} <= {*found}
    assert {"no", "resnet-50"}.isdisjoint(found)


@pytest.mark.parametrize("part", ["-", "a-", "eyJ-", "key ", "://:", ":", "basic ", "x" * 10])
def test_long_texts(part: str) -> None:
    """A text is searched once, and not again from each of its characters, which would take minutes here."""
    assert not is_secret("x", part * 100_000)
    is_secret("key", part * 100_000, is_in_program=True)
