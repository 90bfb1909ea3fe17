// Starts a relay-client as configured in the settings, shows its output, and stops it when the window closes.

import { spawn, type ChildProcess } from 'node:child_process';
import * as vscode from 'vscode';
import { findProgram } from './localFiles';
import { ask, notify, Output } from './sinks';

const ERROR = /^relay-client: error: (.*)$/gm;

export class Launcher implements vscode.Disposable {
  readonly output = new Output('Relay Debug');
  private child: ChildProcess | undefined;

  get pid(): number | undefined {
    return this.child?.pid;
  }

  async start(): Promise<void> {
    if (this.child) return this.output.show(true);
    const settings = vscode.workspace.getConfiguration('relayDebug');
    const options = settings.get<string[]>('arguments', []);
    const chosen = options.length ? options : await askForArguments();
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
    const program = await findProgram(command, folders, vscode.workspace.isTrusted);
    if (this.child) return;
    if (!program) {
      const where = vscode.workspace.isTrusted ? '' : ' outside this folder, which is not trusted';
      throw new Error(`Cannot find the program '${command}'${where}. Set relayDebug.command to the path of relay-client.`);
    }
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
    child.on('error', (error) => this.ended(child, `${program} cannot be started: ${error.message}`));
    child.on('close', (status) => this.ended(child, status ? reason(written, status) : ''));
    this.child = child;
  }

  private ended(child: ChildProcess, error: string): void {
    if (this.child !== child) return;
    this.child = undefined;
    if (error) void this.show(error);
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
async function askForArguments(): Promise<string[] | undefined> {
  const hc = await ask(
    'Name of the hybrid connection; leave it empty if the connection string contains it. Credentials come from RELAY_* variables.',
    { title: 'Start relay-client (1/2)' },
  );
  if (hc === undefined) return undefined;
  const ports = await ask('Local ports for the ranks', {
    title: 'Start relay-client (2/2)', value: '5678',
    validateInput: (text) => (/^[\d,-]+$/.test(text) ? undefined : 'Use ports such as 5678, 5678-5681 or 5678,5690'),
  });
  if (ports === undefined) return undefined;
  const chosen = [...(hc ? ['--hc', hc] : []), '--ports', ports];
  const target = vscode.workspace.workspaceFolders ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
  await vscode.workspace.getConfiguration('relayDebug').update('arguments', chosen, target);
  return chosen;
}
