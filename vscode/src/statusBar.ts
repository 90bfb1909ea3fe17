// The status bar entry: the number of ranks, and how many of them have crashed or are stopped.

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
    const counts = ['crashed', 'stopped'].map((kind) => [ranks.filter(({ target }) => target.kind === kind).length, kind] as const);
    const away = statuses.some(({ nodes }) => nodes.some(({ link }) => link !== 'connected' && link !== 'connecting'));
    const count = `${ranks.length} rank${ranks.length === 1 ? '' : 's'}`;
    this.item.text = `$(${away ? 'warning' : 'server'}) ${count}${counts.map(([number, kind]) => (number ? `, ${number} ${kind}` : '')).join('')}`;
    const nodes = statuses.flatMap((status) => status.nodes.map((node) => `${nodeLabel(node)}: ${describeNode(node)}`));
    this.item.tooltip = nodes.length ? nodes.join('\n') : 'relay-client is running; no agent is connected';
    this.item.show();
  }
}
