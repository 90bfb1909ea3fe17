// The "Ranks" view: relay-clients (if there are several), nodes and ranks.

import * as vscode from 'vscode';
import type { Clients } from './clients';
import { treeItem } from './sinks';
import { describe, describeNode, describeShortly, isAbandoned, label, nodeLabel, type Ended, type Node, type Rank, type Status } from './state';

export type Item =
  | { kind: 'client'; status: Status }
  | { kind: 'node'; status: Status; node: Node }
  | { kind: 'rank'; rank: Rank }
  | { kind: 'ended'; status: Status; node: Node; how: string };

// A row keeps its `Item` as long as it exists, and only rows that look different are refreshed: VS Code forgets the items
// of a refreshed tree until it has requested them again; clicking a row in the meantime runs its command without the item.
class RanksView implements vscode.TreeDataProvider<Item> {
  private readonly changed = new vscode.EventEmitter<Item | undefined>();
  readonly onDidChangeTreeData = this.changed.event;
  private items = new Map<string, Item>();
  private looks = new Map<string, string>();

  constructor(private readonly clients: Clients) {
    this.looks = this.update();
    clients.onDidChange(() => this.refresh());
  }

  getChildren(item?: Item): Item[] {
    const found = item ? childrenOf(item) : rootsOf(this.clients.statuses);
    return found.map((each) => this.items.get(idOf(each)) ?? each);
  }

  getTreeItem(item: Item): vscode.TreeItem {
    return rowOf(item);
  }

  private refresh(): void {
    const before = this.looks;
    this.looks = this.update();
    if (before.get('') !== this.looks.get('')) {
      this.changed.fire(undefined);
      return;
    }
    for (const [id, look] of this.looks) {
      const item = this.items.get(id);
      if (item && before.has(id) && before.get(id) !== look) this.changed.fire(item);
    }
  }

  // Copies the current state into the items; returns what each row and its list of children look like, with '' for the root.
  private update(): Map<string, string> {
    const items = new Map<string, Item>();
    const looks = new Map<string, string>();
    const visit = (found: Item[]): string[] => found.map((each) => {
      const id = idOf(each);
      const item = Object.assign(this.items.get(id) ?? each, each);
      items.set(id, item);
      const { command: _, ...look } = rowOf(item);
      looks.set(id, JSON.stringify([look, visit(childrenOf(item))]));
      return id;
    });
    looks.set('', JSON.stringify(visit(rootsOf(this.clients.statuses))));
    this.items = items;
    return looks;
  }
}

export function createRanksView(clients: Clients): vscode.Disposable {
  const view = vscode.window.createTreeView('relayDebug.ranks', { treeDataProvider: new RanksView(clients) });
  // When a view is opened for the first time, VS Code lays out its rows only after two seconds, or when the view gets a message.
  const opened = view.onDidChangeVisibility(() => {
    view.message = '';
    opened.dispose();
  });
  return view;
}

function rootsOf(statuses: readonly Status[]): Item[] {
  const [only] = statuses;
  return statuses.length === 1 && only ? nodesOf(only) : statuses.map((status) => ({ kind: 'client', status }));
}

function childrenOf(item: Item): Item[] {
  if (item.kind === 'client') return nodesOf(item.status);
  if (item.kind !== 'node') return [];
  const { status, node } = item;
  const targets = [...node.targets].sort((one, other) => one.port - other.port);
  const endings = new Set(ended(node).map(({ how }) => how));
  return [
    ...targets.map((target): Item => ({ kind: 'rank', rank: { client: status.client, node, target } })),
    ...[...endings].map((how): Item => ({ kind: 'ended', status, node, how })),
  ];
}

// The processes that have ended and whose ports lead to no other process.
function ended(node: Node): Ended[] {
  return node.ended.filter(({ port }) => node.targets.every((target) => target.port !== port));
}

function nodesOf(status: Status): Item[] {
  return status.nodes.map((node) => ({ kind: 'node', status, node }));
}

function idOf(item: Item): string {
  if (item.kind === 'client') return item.status.client.id;
  if (item.kind === 'node') return `${item.status.client.id}/${item.node.agent}`;
  if (item.kind === 'ended') return `${item.status.client.id}/${item.node.agent}/${item.how}`;
  return `${item.rank.client.id}/${item.rank.node.agent}/${item.rank.target.port}`;
}

function rowOf(item: Item): vscode.TreeItem {
  if (item.kind === 'client') return clientRow(item.status);
  if (item.kind === 'ended') return endedRow(item);
  return item.kind === 'node' ? nodeRow(item.status, item.node) : rankRow(item);
}

function clientRow({ client, nodes }: Status): vscode.TreeItem {
  return treeItem({
    id: client.id,
    label: client.hc,
    description: nodes.length ? `pid ${client.pid}` : 'no agent is connected',
    tooltip: `relay-client ${client.id} on '${client.hc}' in ${client.namespace}`,
    icon: new vscode.ThemeIcon('remote'),
    context: 'client',
    isOpen: true,
  });
}

function nodeRow(status: Status, node: Node): vscode.TreeItem {
  return treeItem({
    id: idOf({ kind: 'node', status, node }),
    label: nodeLabel(node),
    description: describeNode(node),
    tooltip: node.cwd ? `${node.host}: ${node.cwd}` : node.host,
    icon: new vscode.ThemeIcon(node.link === 'connected' ? 'server' : 'warning'),
    context: 'node',
    isOpen: true,
  });
}

function rankRow(row: Item & { kind: 'rank' }): vscode.TreeItem {
  const { node, target } = row.rank;
  return treeItem({
    id: idOf(row),
    label: label(target),
    description: describeShortly(target),
    tooltip: [`${label(target)} on ${node.host}`, target.script, target.pid && `pid ${target.pid}`, describe(target)]
      .filter(Boolean).join('\n'),
    spoken: `${label(target)}, ${describe(target)}`,
    icon: icon(row.rank),
    context: ['rank', target.attached_here && 'here', isAbandoned(target) && 'away', target.stop && 'stopped'].filter(Boolean).join('.'),
    ...(target.stop?.file && { opens: { command: 'relayDebug.openPlace', title: 'Go to Where the Rank Is Stopped', argument: row } }),
  });
}

function endedRow(row: Item & { kind: 'ended' }): vscode.TreeItem {
  const alike = ended(row.node).filter(({ how }) => how === row.how).sort((one, other) => one.port - other.port);
  const ranks = alike.flatMap(({ rank }) => rank ?? []);
  const isRanks = ranks.length === alike.length;
  const name = `${isRanks ? 'rank' : 'port'}${alike.length > 1 ? 's' : ''} ${(isRanks ? ranks : alike.map(({ port }) => port)).join(', ')}`;
  return treeItem({
    id: idOf(row),
    label: name,
    description: row.how,
    tooltip: `${name}: ${row.how}`,
    icon: new vscode.ThemeIcon('circle-slash'),
    context: 'ended',
  });
}

function icon({ target }: Rank): vscode.ThemeIcon {
  const red = new vscode.ThemeColor('debugIcon.breakpointForeground');
  if (isAbandoned(target)) return new vscode.ThemeIcon('debug-disconnect', new vscode.ThemeColor('list.warningForeground'));
  if (target.kind === 'crashed') return new vscode.ThemeIcon('error', red);
  if (target.kind === 'stopped') return new vscode.ThemeIcon('debug-pause');
  if (target.kind === 'waiting') return new vscode.ThemeIcon('watch');
  return new vscode.ThemeIcon(target.attached_here ? 'debug-alt' : 'circle-outline');
}
