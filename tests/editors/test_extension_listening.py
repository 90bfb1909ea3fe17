"""Facts about relay-client for debug configurations with `listen`, run by Node."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.editors.vscode.modules import needs_esbuild, run_extension_modules

pytestmark = [pytest.mark.editors, needs_esbuild]

PROGRAM = """
import { readFileSync } from 'node:fs';
import { calls } from 'vscode';
import { ListeningSessions } from './src/sessionsThatListen';
const { statuses, listen, answer, ends } = JSON.parse(readFileSync(0, 'utf8'));
const launcher = { pid: undefined, starts: [] };
launcher.start = async (ports) => { launcher.starts.push(ports); launcher.pid = 7; };
launcher.stop = () => { launcher.stopped = true; };
const answers = answer === null ? {} : { 'relayDebug.startsForListeningSessions': answer };
const state = { get: (key) => answers[key], update: async (key, value) => { answers[key] = value; } };
const sessions = new ListeningSessions({ statuses, onDidChange: () => ({ dispose() {} }) }, launcher, state);
const tracker = sessions.createDebugAdapterTracker({ id: 's1', name: 'mine', configuration: { listen } });
tracker.onDidSendMessage({ type: 'event', event: 'debugpyWaitingForServer', body: { host: '127.0.0.1', port: 5679 } });
setTimeout(ends ? tracker.onWillStopSession : () => {}, 2000);
process.on('exit', () => {
  const asked = calls.some(([name]) => name === 'window.showInformationMessage');
  console.log(JSON.stringify([asked, launcher.starts, Object.values(answers), launcher.stopped ?? false]));
});
"""
LOCAL = {"host": "localhost", "port": 5679}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, [True, ["5679"], [True], False], id="no answer yet"),
        pytest.param({"answer": True, "ends": True}, [False, ["5679"], [True], True], id="yes, and the session ends"),
        pytest.param({"answer": False}, [False, [], [False], False], id="never in this workspace"),
        pytest.param({"statuses": [{"ports": []}]}, [False, [], [], False], id="a relay-client is running"),
        pytest.param({"listen": {"host": "0.0.0.0", "port": 5679}}, [False, [], [], False], id="not on loopback"),
        pytest.param({"listen": None}, [False, [], [], False], id="a session that connects"),
    ],
)
async def test_a_session_listens(tmp_path: Path, given: dict[str, Any], expected: list[Any]) -> None:
    """The user is asked once whether to start relay-client, and the answer is kept; it stops with the last session."""
    given = {"statuses": [], "listen": LOCAL, "answer": None, "ends": False, **given}
    assert [expected] == await run_extension_modules(PROGRAM, tmp_path, given=given)
