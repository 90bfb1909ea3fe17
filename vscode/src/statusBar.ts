// The status bar entry: the number of ranks, and how many of them have crashed or are stopped.

import type * as vscode from 'vscode';
import type { Clients } from './clients';
import { setRunning, StatusEntry } from './sinks';
import { describeNode, nodeLabel } from './state';

export class StatusBar implements vscode.Disposable {
  private readonly entry = new StatusEntry('relayDebug.ranks', 'Relay Debug', 'relayDebug.ranks.focus');

  constructor(private readonly clients: Clients) {
    clients.onDidChange(() => this.update());
  }

  dispose(): void {
    this.entry.dispose();
  }

  private update(): void {
    const { statuses, ranks } = this.clients;
    setRunning(statuses.length > 0);
    if (!statuses.length) return this.entry.hide();
    const counts = ['crashed', 'stopped'].map((kind) => [ranks.filter(({ target }) => target.kind === kind).length, kind] as const);
    const away = statuses.some(({ nodes }) => nodes.some(({ link }) => link !== 'connected' && link !== 'connecting'));
    const count = `${ranks.length} rank${ranks.length === 1 ? '' : 's'}`;
    const text = `${count}${counts.map(([number, kind]) => (number ? `, ${number} ${kind}` : '')).join('')}`;
    const nodes = statuses.flatMap((status) => status.nodes.map((node) => `${nodeLabel(node)}: ${describeNode(node)}`));
    const tooltip = nodes.length ? nodes.join('\n') : 'relay-client is running; no agent is connected';
    this.entry.show(away ? 'warning' : 'server', text, tooltip);
  }
}
