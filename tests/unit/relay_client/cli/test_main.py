"""Facts about options of the relay-client command that no other test covers."""

import pytest

from relay_client.cli import make_parser


@pytest.mark.parametrize(
    ("argv", "prefetch"),
    [
        (["--ports", "5678"], True),
        (["--ports", "5678", "--no-prefetch"], False),
        (["attach", "--rank", "3"], True),
        (["attach", "--rank", "3", "--no-prefetch"], False),
        (["--no-prefetch", "attach", "--rank", "3"], False),
        (["tensorboard"], True),
    ],
)
def test_no_prefetch(argv, prefetch):
    """The option is accepted before and after the command."""
    assert make_parser().parse_args(argv).prefetch is prefetch


@pytest.mark.parametrize("argv", [["attach", "1"], ["attach", "--rank", "1"], ["attach", "--ranks", "1"]])
def test_the_ranks_of_attach(argv):
    """They are given with or without an option, which has two names."""
    arguments = make_parser().parse_args(argv)
    assert ["1"] == [*arguments.ranks, *arguments.rank]


@pytest.mark.parametrize(
    ("argv", "rank"), [(["1"], 1), (["--rank", "1"], 1), (["--ranks", "1"], 1), (["--no-stop", "0"], 0), ([], 0)]
)
def test_the_rank_of_pdb(argv, rank):
    """It is given with or without an option, which has two names; the default is rank 0."""
    arguments = make_parser().parse_args(["pdb", *argv])
    assert rank == (arguments.rank if arguments.number is None else arguments.number)


@pytest.mark.parametrize("command", [[], ["init", "vscode"], ["doctor"], ["env", "0"], ["hang"]])
def test_ports_has_two_names(command):
    """Each command for several ports accepts --port, the option of those for one port, as another name of --ports."""
    for option in ("--ports", "--port"):
        assert "5678-5679" == make_parser().parse_args([*command, option, "5678-5679"]).ports
