import pytest

from tests.support.azure.az_shim.kit import FakeAzure

NAMES = ("-g", "debug-rg", "-n", "contoso-debug", "--hc", "alice", "--key-vault", "contoso-kv")


@pytest.fixture
def names():
    """The options that every script takes, for alice."""
    return NAMES


@pytest.fixture
def azure(tmp_path):
    with FakeAzure(tmp_path) as azure:
        yield azure


@pytest.fixture(scope="session")
def state_after_create(tmp_path_factory):
    with FakeAzure(tmp_path_factory.mktemp("created")) as azure:
        assert azure.run("create_relay.sh", *NAMES).code == 0
        return azure.load()


@pytest.fixture
def deployed(azure, state_after_create):
    """Azure after create_relay.sh for alice, with an empty record of calls."""
    azure.save(state_after_create)
    return azure
