"""Facts about options of the relay-client command that nothing else shows."""

import pytest

from relay_client.cli import _parser


@pytest.mark.parametrize(
    ("argv", "ask_ahead"),
    [
        (["--ports", "5678"], True),
        (["--ports", "5678", "--no-ask-ahead"], False),
        (["attach", "--rank", "3"], True),
        (["attach", "--rank", "3", "--no-ask-ahead"], False),
        (["--no-ask-ahead", "attach", "--rank", "3"], False),
        (["tensorboard"], True),
    ],
)
def test_no_ask_ahead(argv, ask_ahead):
    """The option may stand before or behind the command."""
    assert _parser().parse_args(argv).ask_ahead is ask_ahead
