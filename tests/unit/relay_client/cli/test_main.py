"""Facts about options of the relay-client command that no other test covers."""

import pytest

from relay_client.cli import make_parser


@pytest.mark.parametrize(
    ("argv", "prefetch"),
    [
        (["--ports", "5678"], True),
        (["--ports", "5678", "--no-prefetch"], False),
        (["--ports", "5678", "--no-ask-ahead"], False),
        (["attach", "--rank", "3"], True),
        (["attach", "--rank", "3", "--no-ask-ahead"], False),
        (["--no-ask-ahead", "attach", "--rank", "3"], False),
        (["tensorboard"], True),
    ],
)
def test_no_prefetch(argv, prefetch):
    """The option and its older name are accepted before and after the command."""
    assert make_parser().parse_args(argv).prefetch is prefetch
