// The view "Ranks": relay-clients (if there are several), nodes and ranks.

import * as vscode from 'vscode';
import type { Clients } from './clients';
import { describe, describeNode, describeShortly, label, nodeLabel, type Node, type Rank, type Status } from './state';

export type Item =
  | { kind: 'client'; status: Status }
  | { kind: 'node'; status: Status; node: Node }
  | { kind: 'rank'; rank: Rank };

export class RanksView implements vscode.TreeDataProvider<Item> {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;

  constructor(private readonly clients: Clients) {
    clients.onDidChange(() => this.changed.fire());
  }

  getChildren(item?: Item): Item[] {
    const statuses = this.clients.statuses;
    if (!item) {
      const [only] = statuses;
      return statuses.length === 1 && only ? nodesOf(only) : statuses.map((status) => ({ kind: 'client', status }));
    }
    if (item.kind === 'client') return nodesOf(item.status);
    if (item.kind === 'rank') return [];
    const { status: { client }, node } = item;
    const targets = [...node.targets].sort((one, other) => one.port - other.port);
    return targets.map((target) => ({ kind: 'rank', rank: { client, node, target } }));
  }

  getTreeItem(item: Item): vscode.TreeItem {
    if (item.kind === 'client') return clientItem(item.status);
    return item.kind === 'node' ? nodeItem(item.status, item.node) : rankItem(item.rank);
  }
}

function nodesOf(status: Status): Item[] {
  return status.nodes.map((node) => ({ kind: 'node', status, node }));
}

function clientItem({ client, nodes }: Status): vscode.TreeItem {
  const item = new vscode.TreeItem(client.hc, vscode.TreeItemCollapsibleState.Expanded);
  item.id = client.id;
  item.description = nodes.length ? `pid ${client.pid}` : 'no agent is connected';
  item.tooltip = `relay-client ${client.id} on '${client.hc}' of ${client.namespace}`;
  item.iconPath = new vscode.ThemeIcon('remote');
  item.contextValue = 'client';
  return item;
}

function nodeItem(status: Status, node: Node): vscode.TreeItem {
  const item = new vscode.TreeItem(nodeLabel(node), vscode.TreeItemCollapsibleState.Expanded);
  item.id = `${status.client.id}/${node.agent}`;
  item.description = describeNode(node);
  item.tooltip = node.cwd ? `${node.host}: ${node.cwd}` : node.host;
  item.iconPath = new vscode.ThemeIcon(node.link === 'connected' ? 'server' : 'warning');
  item.contextValue = 'node';
  return item;
}

function rankItem(rank: Rank): vscode.TreeItem {
  const { client, node, target } = rank;
  const item = new vscode.TreeItem(label(target));
  item.id = `${client.id}/${node.agent}/${target.port}`;
  item.description = describeShortly(target);
  item.tooltip = [`${label(target)} on ${node.host}`, target.script, target.pid && `pid ${target.pid}`, describe(target)]
    .filter(Boolean).join('\n');
  item.accessibilityInformation = { label: `${label(target)}, ${describe(target)}` };
  item.iconPath = icon(rank);
  item.contextValue = ['rank', target.attached_here && 'here', target.stop && 'stopped'].filter(Boolean).join('.');
  if (target.stop?.file) {
    item.command = { command: 'relayDebug.openPlace', title: 'Go to Where It Is Stopped', arguments: [{ kind: 'rank', rank }] };
  }
  return item;
}

function icon({ target }: Rank): vscode.ThemeIcon {
  const red = new vscode.ThemeColor('debugIcon.breakpointForeground');
  if (target.state === 'crashed') return new vscode.ThemeIcon('error', red);
  if (target.stop ?? target.activity?.startsWith('stopped')) return new vscode.ThemeIcon('debug-pause');
  if (target.state === 'waiting') return new vscode.ThemeIcon('watch');
  return new vscode.ThemeIcon(target.attached_here ? 'debug-alt' : 'circle-outline');
}
