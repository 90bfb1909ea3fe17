import pytest

from tests.support.az_shim.kit import FakeAzure


@pytest.fixture
def azure(tmp_path):
    return FakeAzure(tmp_path)


@pytest.fixture
def deployed(azure, names):
    """Azure after create_relay.sh for alice, with an empty record of calls."""
    assert azure.run("create_relay.sh", *names).code == 0
    azure.forget_calls()
    return azure


@pytest.fixture
def names():
    """The options that every script takes, for alice."""
    return ("-g", "debug-rg", "-n", "contoso-debug", "--hc", "alice", "--key-vault", "contoso-kv")
