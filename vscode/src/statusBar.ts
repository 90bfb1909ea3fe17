// The status bar entry: the number of ranks, and how many are stopped.

import * as vscode from 'vscode';
import type { Clients } from './clients';
import { describeNode, nodeLabel } from './state';

export class StatusBar implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem('relayDebug.ranks', vscode.StatusBarAlignment.Left);

  constructor(private readonly clients: Clients) {
    this.item.name = 'Relay Debug';
    this.item.command = 'relayDebug.ranks.focus';
    clients.onDidChange(() => this.update());
  }

  dispose(): void {
    this.item.dispose();
  }

  private update(): void {
    const { statuses, ranks } = this.clients;
    void vscode.commands.executeCommand('setContext', 'relayDebug.running', statuses.length > 0);
    if (!statuses.length) return this.item.hide();
    const stopped = ranks.filter(({ target }) => target.kind === 'stopped' || target.kind === 'crashed').length;
    const away = statuses.some(({ nodes }) => nodes.some(({ link }) => link !== 'connected' && link !== 'connecting'));
    const count = `${ranks.length} rank${ranks.length === 1 ? '' : 's'}`;
    this.item.text = `$(${away ? 'warning' : 'server'}) ${count}${stopped ? `, ${stopped} stopped` : ''}`;
    const nodes = statuses.flatMap((status) => status.nodes.map((node) => `${nodeLabel(node)}: ${describeNode(node)}`));
    this.item.tooltip = nodes.length ? nodes.join('\n') : 'relay-client is running; no agent is connected';
    this.item.show();
  }
}
