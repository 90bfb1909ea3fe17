"""Facts about the address of an Azure ML run."""

import pytest

from relay_agent.node.in_agent.processes import find_run_url

JOB = {
    "AZUREML_RUN_ID": "careful_pear_1234",
    "AZUREML_ARM_SUBSCRIPTION": "11111111-2222-3333-4444-555555555555",
    "AZUREML_ARM_RESOURCEGROUP": "ml-rg",
    "AZUREML_ARM_WORKSPACE_NAME": "contoso-ml",
}


def test_run_of_a_workspace() -> None:
    """The address has the run and the path of its workspace."""
    workspace = "/subscriptions/11111111-2222-3333-4444-555555555555/resourcegroups/ml-rg/workspaces/contoso-ml"
    assert f"https://ml.azure.com/runs/careful_pear_1234?wsid={workspace}" == find_run_url(JOB)


@pytest.mark.parametrize("name", JOB)
@pytest.mark.parametrize("value", ["", "a b", "a&b=c", "a\x1b[2J", "a/b"])
def test_no_address(name: str, value: str) -> None:
    """Without a variable, or with a character that would end or change the address, there is none."""
    assert "" == find_run_url(JOB | {name: value})
