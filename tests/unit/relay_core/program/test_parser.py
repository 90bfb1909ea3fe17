"""Facts about the parser of the programs."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from relay_core.program.parser import ProgramParser, add_version


def make_parser(**options: str) -> ProgramParser:
    parser = ProgramParser(prog="prog", allow_abbrev=False, **options)
    parser.add_argument("--size", type=int)
    add_version(parser)
    commands = parser.add_subparsers(metavar="COMMAND")
    copy = commands.add_parser("copy", help="copy")
    copy.add_argument("--from", required=True)
    copy.add_argument("--depth", type=int)
    start = commands.add_parser("start", help="start")
    start.add_argument("rest", nargs="...")
    return parser


def error_of(capfd: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    """Return the lines that an invalid command line prints."""
    with pytest.raises(SystemExit) as caught:
        make_parser().parse_args(argv)
    assert 2 == caught.value.code
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--sise 3", "prog: error: no such option: --sise. hint: did you mean --size?"),
        ("--sise=3 copy --from a", "prog: error: no such option: --sise. hint: did you mean --size?"),
        (
            "--colour copy --from a",
            "prog: error: no such option: --colour. hint: run 'prog --help' to list the options",
        ),
        ("--siz 3 copy --from a", "prog: error: no such option: --siz. hint: did you mean --size?"),
        ("ocpy --form a", "prog: error: no such command: 'ocpy'. hint: did you mean 'copy'?"),
        ("move", "prog: error: no such command: 'move'. hint: run 'prog --help' to list the commands"),
        ("copy --form a", "prog copy: error: no such option: --form. hint: did you mean --from?"),
        ("copy --from a --dept=1 --deth=1", "prog copy: error: no such option: --deth. hint: did you mean --depth?"),
        ("copy --from a -x", "prog copy: error: no such option: -x. hint: run 'prog copy --help' to list the options"),
        ("-size 3", "prog: error: no such option: -size. hint: did you mean --size?"),
        ("copy --from a b", "prog copy: error: unexpected argument: 'b'"),
        ("copy", "prog copy: error: the following arguments are required: --from"),
    ],
)
def test_errors(line: str, error: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The last line names the word that is wrong, and one that it resembles; the usage is that of the command."""
    first, *_, last = error_of(capfd, *line.split())
    assert error == last
    assert first.startswith(f"usage: {error.partition(':')[0]} ")


def test_a_number_in_the_place_of_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    """The hint names the option that the number was meant for, if the program has such an option."""
    parser = make_parser(option_for_numbers="--size")
    for word, hint in {
        "7": "did you mean --size 7?",
        "7-9": "did you mean --size 7-9?",
        "move": "run 'prog --help' to list",
    }.items():
        with pytest.raises(SystemExit):
            parser.parse_args([word])
        assert f"no such command: '{word}'. hint: {hint}" in capfd.readouterr().err


def test_an_error_in_an_option_is_not_blamed_on_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    """The options of a command are not those of the program before it."""
    assert error_of(capfd, "--size", "x", "copy", "--from", "a")[-1].startswith("prog: error: argument --size: invalid")


def test_the_rest_of_the_command_line_is_free() -> None:
    """A command that takes a whole command line accepts every option in it."""
    assert ["--", "ls", "--sise"] == make_parser().parse_args(["start", "--", "ls", "--sise"]).rest
    assert ["ls", "--sise"] == make_parser().parse_args(["start", "ls", "--sise"]).rest


def test_the_version(capfd: pytest.CaptureFixture[str]) -> None:
    """It is that of the installed package."""
    with pytest.raises(SystemExit) as caught:
        make_parser().parse_args(["--version"])
    assert 0 == caught.value.code
    assert f"prog {version('relay-debug')}\n" == capfd.readouterr().out


@pytest.mark.parametrize("package", ["relay_client", "relay_agent", "relay_server"])
def test_the_version_needs_few_modules(package: str) -> None:
    """`--version` imports neither asyncio nor ssl, and a parser alone no reader of package metadata."""
    code = f"""if True:
        import sys, {package}.cli as cli
        cli.make_parser()
        before = "importlib.metadata" in sys.modules
        try:
            cli.run()
        finally:
            print(before, [name for name in ("asyncio", "ssl", "difflib") if name in sys.modules])
        """
    finished = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True)
    assert "False []" == finished.stdout.splitlines()[-1]
