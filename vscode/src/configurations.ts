// Launch configurations: every rank is in the Run drop-down without a launch.json.

import * as vscode from 'vscode';
import { RequestFailed } from './connection';
import type { Clients } from './clients';
import { describe, label, type Rank } from './state';

// In this extension's configurations until they are resolved: the rank to attach to.
const MARK = 'relayDebug';

interface Mark {
  client: string;
  port: number;
}

export function configurationOf(rank: Rank, folder: vscode.WorkspaceFolder | undefined): vscode.DebugConfiguration {
  const { client, node, target } = rank;
  const settings = vscode.workspace.getConfiguration('relayDebug', folder);
  const mark: Mark = { client: client.id, port: target.port };
  return {
    name: `${label(target)} on ${node.host}`,
    type: 'debugpy',
    request: 'attach',
    connect: { host: '127.0.0.1', port: target.local_ports[0] ?? target.port },
    pathMappings: [{
      localRoot: folder?.uri.fsPath ?? '${workspaceFolder}',
      remoteRoot: settings.get<string>('remoteRoot', '.'),
    }],
    justMyCode: settings.get<boolean>('justMyCode', false),
    subProcess: true,
    [MARK]: mark,
  };
}

export class RankConfigurations implements vscode.DebugConfigurationProvider {
  constructor(private readonly clients: Clients) {}

  // VS Code asks for each folder, and once more for none: "user settings".
  provideDebugConfigurations(folder: vscode.WorkspaceFolder | undefined): vscode.DebugConfiguration[] {
    if (!folder && vscode.workspace.workspaceFolders?.length) return [];
    return this.clients.ranks.map((rank) => configurationOf(rank, folder));
  }

  // Opens the rank's local port; other configurations are unchanged. undefined cancels the session.
  async resolveDebugConfiguration(
    _folder: vscode.WorkspaceFolder | undefined, configuration: vscode.DebugConfiguration,
  ): Promise<vscode.DebugConfiguration | undefined> {
    const { [MARK]: mark, ...rest } = configuration as vscode.DebugConfiguration & { [MARK]?: Mark };
    if (!mark) return configuration;
    const rank = this.clients.ranks.find((each) => each.client.id === mark.client && each.target.port === mark.port);
    if (!rank) {
      void vscode.window.showErrorMessage(`${configuration.name} is not available anymore.`);
      return undefined;
    }
    try {
      const attached = await withProgress(rank, this.clients.attach(rank.client, mark.port));
      return { ...rest, connect: { host: attached.host, port: attached.local_port } } as vscode.DebugConfiguration;
    } catch (error) {
      showError(error);
      return undefined;
    }
  }
}

function withProgress<T>(rank: Rank, work: Promise<T>): Thenable<T> {
  const title = `Attaching to ${label(rank.target)} on ${rank.node.host}`;
  return vscode.window.withProgress({ location: vscode.ProgressLocation.Window, title }, () => work);
}

// Attaches to a rank; if somebody else holds it, shows an error that names the holder.
export async function attach(rank: Rank): Promise<void> {
  if (!hasDebugger()) {
    void vscode.window.showErrorMessage('The extension Python Debugger (ms-python.debugpy) is not installed.');
    return;
  }
  if (rank.target.holder && !rank.target.attached_here) {
    void vscode.window.showErrorMessage(`${label(rank.target)} on ${rank.node.host}: ${describe(rank.target)}.`);
    return;
  }
  const [folder] = vscode.workspace.workspaceFolders ?? [];
  await vscode.debug.startDebugging(folder, configurationOf(rank, folder));
}

function hasDebugger(): boolean {
  interface Contributions { contributes?: { debuggers?: { type?: string }[] } }
  return vscode.extensions.all.some((each) =>
    (each.packageJSON as Contributions).contributes?.debuggers?.some(({ type }) => type === 'debugpy'));
}

export function showError(error: unknown): void {
  const text = error instanceof RequestFailed || error instanceof Error ? error.message : String(error);
  void vscode.window.showErrorMessage(text);
}
