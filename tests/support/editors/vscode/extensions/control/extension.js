'use strict';
// Lets a test drive this window through the VS Code API, and see what passes between the editor and debug adapters.
//
// It connects to 127.0.0.1:RELAY_TESTS_CONTROL_PORT and exchanges one JSON object a line. Its first line names the window's
// folder. A test then sends {id, operation, ...} and receives {id, value} or {id, error}; each debug adapter message and each
// start and end of a session is sent as it happens.
const net = require('net');
const vscode = require('vscode');

const operations = {
  async open({ path }) {
    await vscode.window.showTextDocument(vscode.Uri.file(path));
  },
  async breakpoint({ path, line, condition, message }) {
    const location = new vscode.Location(vscode.Uri.file(path), new vscode.Position(line - 1, 0));
    vscode.debug.addBreakpoints([new vscode.SourceBreakpoint(location, true, condition, undefined, message)]);
  },
  // Not awaited: an attach may be held for as long as the job takes to come.
  async start({ name }) {
    vscode.debug.startDebugging(vscode.workspace.workspaceFolders[0], name);
  },
  async end() {
    await vscode.debug.stopDebugging();
  },
  async command({ command, parameters }) {
    return vscode.commands.executeCommand(command, ...(parameters || []));
  },
  async commands({ commands }) {
    for (const [command, ...parameters] of commands) await vscode.commands.executeCommand(command, ...parameters);
  },
  async terminals() {
    return vscode.window.terminals.length;
  },
  async setting({ name }) {
    return vscode.workspace.getConfiguration().get(name);
  },
  // Returns once the editor has read launch.json and tasks.json as they are now.
  async configured({ wanted }) {
    const read = () => {
      const launch = vscode.workspace.getConfiguration('launch');
      const { tasks = [] } = vscode.workspace.getConfiguration('tasks');
      return JSON.stringify([launch.configurations || [], launch.compounds || [], tasks]);
    };
    while (read() !== JSON.stringify(wanted)) {
      await nextEvent(vscode.workspace.onDidChangeConfiguration);
    }
  },
};

function nextEvent(event) {
  return new Promise((resolve) => {
    const listening = event(() => {
      listening.dispose();
      resolve();
    });
  });
}

exports.activate = (context) => {
  const port = Number(process.env.RELAY_TESTS_CONTROL_PORT || 0);
  const [folder] = vscode.workspace.workspaceFolders || [];
  if (!port || !folder) return;
  const socket = net.connect(port, '127.0.0.1');
  const send = (message) => socket.write(`${JSON.stringify(message)}\n`);
  socket.setEncoding('utf8');
  socket.on('error', () => {}); // the test has ended
  send({ folder: folder.uri.fsPath, version: vscode.version });
  readLines(socket, async (line) => send(await answer(JSON.parse(line))));
  context.subscriptions.push(
    { dispose: () => socket.destroy() },
    vscode.debug.registerDebugAdapterTrackerFactory('*', { createDebugAdapterTracker: (session) => tracker(session, send) }));
};

function readLines(socket, receive) {
  let rest = '';
  socket.on('data', (text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    lines.forEach(receive);
  });
}

async function answer(request) {
  try {
    return { id: request.id, value: (await operations[request.operation](request)) ?? null };
  } catch (error) {
    return { id: request.id, error: String((error && error.stack) || error) };
  }
}

function tracker(session, send) {
  const report = (what, message) => send({ session: session.name, sessionId: session.id, at: Date.now() / 1000, what, message });
  return {
    onWillStartSession: () => report('started', session.configuration),
    onWillReceiveMessage: (message) => report('sent', message),
    onDidSendMessage: (message) => report('received', message),
    onWillStopSession: () => report('ended'),
    onError: (error) => report('error', String((error && error.message) || error)),
  };
}
