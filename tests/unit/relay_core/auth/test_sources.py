"""Facts about where connection strings come from."""

import os
from pathlib import Path

import pytest

from relay_core.access_settings import AccessSettings
from relay_core.auth.sources import find_connection_string, local_sources
from relay_core.errors import ConfigurationError
from tests.support.machine import secrets


def connection_string(host: str, entity: str = ";EntityPath=myhc") -> str:
    return f"Endpoint=sb://{host};SharedAccessKeyName=k;SharedAccessKey={secrets.new_key()}{entity}"


def private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    return private(tmp_path / "connection", connection_string("from-file") + "\n")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, empty at first."""
    path = tmp_path / "work"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


def test_the_whole_order(secret_file: Path, directory: Path) -> None:
    """Each source wins over all that follow it."""
    private(directory / ".azrelay.json", f'{{"AZRELAY_CONNECTION_STRING": "{connection_string("from-old-file")}"}}')
    environ = {
        "RELAY_CONNECTION_STRING": connection_string("from-variable"),
        "RELAY_CONNECTION_STRING_FILE": str(private(directory / "b", connection_string("from-file-variable"))),
        "AZRELAY_CONNECTION_STRING": connection_string("from-old-variable"),
    }
    given = {"text": connection_string("from-flag"), "file": str(secret_file)}
    assert find_connection_string(**given, environ=environ).host == "from-flag"
    del given["text"]
    assert find_connection_string(**given, environ=environ).host == "from-file"
    assert find_connection_string(environ=environ).host == "from-variable"
    del environ["RELAY_CONNECTION_STRING"]
    assert find_connection_string(environ=environ).host == "from-file-variable"
    del environ["RELAY_CONNECTION_STRING_FILE"]
    assert find_connection_string(environ=environ).host == "from-old-file"
    (directory / ".azrelay.json").unlink()
    assert find_connection_string(environ=environ).host == "from-old-variable"


def test_nothing_configured_is_explained() -> None:
    """Without any source the error names the usual ones."""
    with pytest.raises(ConfigurationError, match="no connection string.*RELAY_CONNECTION_STRING.*_FILE.*0600"):
        find_connection_string(environ={})


def test_the_hybrid_connection_is_checked(secret_file: Path) -> None:
    """--hc must agree with the string's EntityPath, and the sentence names the source."""
    with pytest.raises(ConfigurationError, match="^--connection-string-file: .*not for 'other'"):
        find_connection_string(file=str(secret_file), environ={}, hc="other")


def test_an_unusable_source_is_an_error() -> None:
    """A broken source is not passed over for the next one: that could be another relay."""
    environ = {"RELAY_CONNECTION_STRING": "rubbish", "AZRELAY_CONNECTION_STRING": connection_string("other")}
    with pytest.raises(ConfigurationError, match="^RELAY_CONNECTION_STRING: the connection string has an unknown"):
        find_connection_string(environ=environ)


@pytest.mark.parametrize("name", ["AZRELAY_CONNECTION_NAME", "AZRELAY_NAME"])
def test_the_old_packages_file_names_the_hybrid_connection(directory: Path, name: str) -> None:
    """.azrelay.json brings string and name, under the names of any release; --hc wins over its name."""
    text = f'{{"AZRELAY_CONNECTION_STRING": "{connection_string("old", "")}", "{name}": "oldhc"}}'
    private(directory / ".azrelay.json", text)
    assert find_connection_string(environ={}).endpoint().path == "oldhc"
    assert find_connection_string(environ={}, hc="myhc").endpoint().path == "myhc"


def test_the_old_packages_variables() -> None:
    """AZRELAY_CONNECTION_NAME goes with AZRELAY_CONNECTION_STRING."""
    environ = {"AZRELAY_CONNECTION_STRING": connection_string("old", ""), "AZRELAY_CONNECTION_NAME": "oldhc"}
    assert find_connection_string(environ=environ).endpoint().path == "oldhc"
    assert (
        find_connection_string(environ={**environ, "RELAY_CONNECTION_STRING": connection_string("new")}).host == "new"
    )


@pytest.mark.parametrize("text", ["", "[]", '{"AZRELAY_CONNECTION_STRING": 1}', "{", "[" * 10000, "\x00"])
def test_an_old_file_without_a_string(directory: Path, text: str) -> None:
    """A .azrelay.json that holds no connection string is named."""
    private(directory / ".azrelay.json", text)
    with pytest.raises(ConfigurationError, match=r"^\.azrelay\.json does not contain AZRELAY_CONNECTION_STRING"):
        find_connection_string(environ={})


def test_an_old_file_that_others_can_read(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The old package's users have open files: they work, and are warned with the command that mends it."""
    path = private(directory / ".azrelay.json", f'{{"AZRELAY_CONNECTION_STRING": "{connection_string("old")}"}}')
    path.chmod(0o644)
    assert find_connection_string(environ={}).host == "old"
    assert ["other users can read .azrelay.json, which contains a key; run: chmod 600 .azrelay.json"] == caplog.messages


def test_an_old_file_of_somebody_else(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .azrelay.json that another user has put into the working directory is not used."""
    path = private(directory / ".azrelay.json", f'{{"AZRELAY_CONNECTION_STRING": "{connection_string("old")}"}}')
    if os.getuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr("relay_core.auth.sources.os.getuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        find_connection_string(environ={})


def test_findings_hold_no_secret(secret_file: Path) -> None:
    """What a first look shows is safe to print, and nothing is read for it."""
    settings = AccessSettings(connection_string=connection_string("a"), connection_string_file="/no/such/file")
    environ = {"RELAY_CONNECTION_STRING": connection_string("b"), "RELAY_CONNECTION_STRING_FILE": str(secret_file)}
    sources = local_sources(settings, environ)
    secrets.check(repr(settings), *(source.finding for source in sources))
    assert ["given", "/no/such/file", "set", str(secret_file)] == [source.finding for source in sources[:4]]


def test_an_old_file_on_a_system_without_owners(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files have no owners, as on Windows, the file is used without a check."""
    path = private(directory / ".azrelay.json", f'{{"AZRELAY_CONNECTION_STRING": "{connection_string("old")}"}}')
    path.chmod(0o644)
    monkeypatch.delattr("os.getuid")
    assert find_connection_string(environ={}).host == "old"
