// Starts a relay-client as configured in the settings, shows its output, and stops it when the window closes.

import { spawn, type ChildProcess } from 'node:child_process';
import * as vscode from 'vscode';
import { canSelectInterpreter, programDirectories } from './interpreter';
import { connectionOptions, findProgram } from './localFiles';
import { ask, notify, openCommandSetting, Output, pick, pickFile, selectInterpreter, type Documents } from './sinks';

const INSTALLING = `relay-client is part of relay-debug, which is not on any package index yet. On the machine where VS Code's extensions
run, install it from a checkout, here ~/relay-debug, into an environment:

    python3 -m venv ~/relay-env
    ~/relay-env/bin/pip install "$HOME/relay-debug[client]"

Then either run the command "Python: Select Interpreter" and choose ~/relay-env/bin/python, or set relayDebug.command
to the absolute path of ~/relay-env/bin/relay-client. On Windows, "Scripts" replaces "bin".
`;
const ERROR = /^relay-client: error: (.*)$/gm;

export class Launcher implements vscode.Disposable {
  readonly output = new Output('Relay Debug');
  private child: ChildProcess | undefined;

  constructor(private readonly documents: Documents) {}

  get pid(): number | undefined {
    return this.child?.pid;
  }

  async start(ports = '5678'): Promise<void> {
    if (this.child) return this.output.show(true);
    const settings = vscode.workspace.getConfiguration('relayDebug');
    const options = settings.get<string[]>('arguments', []);
    const chosen = options.length ? options : await askForArguments(ports);
    if (chosen) await this.run(settings.get<string>('command', 'relay-client'), chosen);
  }

  stop(): void {
    this.child?.kill('SIGINT');
  }

  dispose(): void {
    this.stop();
    this.output.dispose();
  }

  private async run(command: string, options: string[]): Promise<void> {
    const folders = (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => uri.fsPath);
    const program = await findProgram(command, folders, vscode.workspace.isTrusted, await programDirectories());
    if (this.child) return;
    if (!program) return this.showMissing(command);
    this.output.append(`$ ${[program, ...options].join(' ')}\n`);
    const [cwd] = folders;
    const child = spawn(program, options, { ...(cwd ? { cwd } : {}), stdio: ['ignore', 'pipe', 'pipe'] });
    let written = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        written = (written + text).slice(-10_000);
        this.output.append(text);
      });
    }
    child.on('error', (error: NodeJS.ErrnoException) => {
      const why = error.code === 'ENOENT' ? 'the Python of its environment no longer exists. Install relay-client again' : error.message;
      this.ended(child, `${program} cannot be started: ${why}.`);
    });
    child.on('close', (status) => this.ended(child, status ? reason(written, status) : ''));
    this.child = child;
  }

  private ended(child: ChildProcess, error: string): void {
    if (this.child !== child) return;
    this.child = undefined;
    if (error) void this.show(error);
  }

  private async showMissing(command: string): Promise<void> {
    const isTrusted = vscode.workspace.isTrusted;
    const where = isTrusted ? 'in the environment of the selected Python interpreter or on the PATH' : 'outside this folder, which is not trusted';
    const actions: Record<string, () => unknown> = {
      ...(isTrusted && canSelectInterpreter() && { 'Select Interpreter': () => selectInterpreter().then(() => this.start()) }),
      'Open Settings': openCommandSetting,
      'How to Install': () => this.documents.show('installing relay-client', INSTALLING),
    };
    const chosen = await notify('Error', `Cannot find the program '${command}' ${where}.`, ...Object.keys(actions));
    await actions[chosen ?? '']?.();
  }

  private async show(error: string): Promise<void> {
    const log = 'Show Log';
    if ((await notify('Error', error, log)) === log) this.output.show();
  }
}

function reason(written: string, status: number): string {
  const errors = [...written.matchAll(ERROR)];
  return errors.at(-1)?.[1] ?? `relay-client exited with status ${status}`;
}

// Asks once, and saves the answer in the settings of this folder.
async function askForArguments(suggested: string): Promise<string[] | undefined> {
  const connection = await askForConnection();
  if (connection === undefined) return undefined;
  const hc = await ask(
    'Name of the hybrid connection; leave it empty if the connection string contains it.', { title: 'Start relay-client (2/3)' },
  );
  if (hc === undefined) return undefined;
  const ports = await ask('Local ports for the ranks', {
    title: 'Start relay-client (3/3)', value: suggested,
    validateInput: (text) => (/^[\d,-]+$/.test(text) ? undefined : 'Use ports such as 5678, 5678-5681 or 5678,5690'),
  });
  if (ports === undefined) return undefined;
  const chosen = [...(hc ? ['--hc', hc] : []), ...connection, '--ports', ports];
  const target = vscode.workspace.workspaceFolders ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
  await vscode.workspace.getConfiguration('relayDebug').update('arguments', chosen, target);
  return chosen;
}

// The options that name the credentials, which the extension itself never reads.
async function askForConnection(): Promise<string[] | undefined> {
  const [folder] = vscode.workspace.workspaceFolders ?? [];
  const isFile = await pick([
    { label: 'Choose a connection file...', description: 'NAME.client.connection of relay-server init, or .azrelay.json', value: true },
    { label: 'Use the environment', description: 'RELAY_* variables, an Entra identity, or .azrelay.json in this folder', value: false },
  ], 'Start relay-client (1/3): which credentials should it use?');
  if (!isFile) return isFile === undefined ? undefined : [];
  const file = await pickFile('Connection file for relay-client', folder?.uri);
  return file === undefined ? undefined : connectionOptions(file, folder?.uri.fsPath);
}
