// What the extension contributes; everything else is in relay-client, which the extension uses through the control socket.

import * as vscode from 'vscode';
import { Clients } from './clients';
import { attach, attachAll, RankConfigurations } from './configurations';
import { Crashes } from './crashes';
import { chooseGroup } from './groups';
import { userDirectories } from './directory';
import { Launcher } from './launcher';
import { ListeningSessions } from './sessionsThatListen';
import { frameLinks, localFile, type Folder } from './localFiles';
import { attachTo, pickRank, RankUris, TerminalLinks, type Wanted } from './links';
import { pushEditor, pushSaved } from './push';
import { RefusedSessions } from './connectionRefused';
import { Documents, notify, openFile, pick, showError, showProgress, startRelayClient } from './sinks';
import { Snapshots, type Captured } from './snapshots';
import { label, type Rank, type Status } from './state';
import { StatusBar } from './statusBar';
import { createRanksView, type Item } from './tree';

export function activate(context: vscode.ExtensionContext): void {
  const clients = new Clients(userDirectories());
  const stacks = new Documents('relay-debug-stacks');
  const launcher = new Launcher(stacks);
  const ranks = new RankConfigurations(clients);
  const crashes = new Crashes(clients, stacks);
  const listening = new ListeningSessions(clients, launcher, context.workspaceState);
  const snapshots = new Snapshots();
  const trigger = vscode.DebugConfigurationProviderTriggerKind;
  context.subscriptions.push(
    clients, launcher, stacks, crashes, new StatusBar(clients),
    createRanksView(clients),
    vscode.window.createTreeView('relayDebug.snapshots', { treeDataProvider: snapshots }),
    vscode.debug.registerDebugAdapterTrackerFactory('debugpy', snapshots),
    vscode.debug.registerDebugConfigurationProvider('debugpy', ranks, trigger.Dynamic),
    vscode.debug.registerDebugConfigurationProvider('debugpy', { resolveDebugConfiguration: ranks.resolveDebugConfiguration.bind(ranks) }),
    vscode.debug.registerDebugAdapterTrackerFactory('debugpy', new RefusedSessions(clients)),
    listening,
    vscode.debug.registerDebugAdapterTrackerFactory('debugpy', listening),
    vscode.window.registerTerminalLinkProvider(new TerminalLinks(clients)),
    vscode.window.registerUriHandler(new RankUris(clients)),
    clients.onEvent((event) => (event.event === 'log' && event.level === 'error' ? showError(event.text) : crashes.add(event))),
    clients.onKilled((status) => void notifyKilled(status)),
    command('start', () => launcher.start()),
    command('stop', (item?: Item) => stop(clients, launcher, item)),
    command('showLog', () => showLog(clients, launcher, stacks)),
    command('attach', (item?: Item | Wanted) => attachCommand(clients, item)),
    command('attachAll', (item?: Item) => attachAllCommand(clients, item)),
    command('group', (item?: Item) => group(clients, item)),
    command('hang', (item?: Item) => showHang(clients, stacks, item)),
    command('release', (item?: Item) => release(clients, item)),
    command('stacks', (item?: Item) => showStacks(clients, stacks, item)),
    command('push', () => pushEditor(clients)),
    vscode.workspace.onDidSaveTextDocument((document) => void pushSaved(clients, document)),
    command('openPlace', (item?: Item | Captured) => openPlace(item)),
    command('clearSnapshots', () => snapshots.clear()),
  );
}

function command(name: string, run: (argument?: never) => unknown): vscode.Disposable {
  return vscode.commands.registerCommand(`relayDebug.${name}`, async (argument?: never) => {
    try {
      await run(argument);
    } catch (error) {
      showError(error);
    }
  });
}

async function attachCommand(clients: Clients, item?: Item | Wanted): Promise<void> {
  if (item && !('kind' in item)) return attachTo(clients, item); // from a keybinding or another extension
  const rank = await rankOf(clients, item);
  if (rank) await attach(rank);
}

async function attachAllCommand(clients: Clients, item?: Item): Promise<void> {
  const status = await clientOf(clients, item);
  if (status) await attachAll(status);
}

async function group(clients: Clients, item?: Item): Promise<void> {
  const status = await clientOf(clients, item);
  if (status) await chooseGroup(clients, status);
}

async function rankOf(clients: Clients, item?: Item): Promise<Rank | undefined> {
  if (item?.kind === 'rank') return item.rank;
  if (!clients.ranks.length) throw new Error(clients.statuses.length ? 'No rank is registered yet.' : 'No relay-client is running.');
  return pickRank(clients.ranks);
}

async function release(clients: Clients, item?: Item): Promise<void> {
  const rank = await rankOf(clients, item);
  if (rank) await clients.request(rank.client, 'release', { port: rank.target.port });
}

async function clientOf(clients: Clients, item?: Item): Promise<Status | undefined> {
  if (item?.kind === 'client') return item.status;
  const { statuses } = clients;
  if (!statuses.length) throw new Error('No relay-client is running.');
  if (statuses.length === 1) return statuses[0];
  const choices = statuses.map((status) => ({ label: status.client.hc, description: `pid ${status.client.pid}`, value: status }));
  return pick(choices, 'Which relay-client?');
}

async function stop(clients: Clients, launcher: Launcher, item?: Item): Promise<void> {
  const own = item ? undefined : clients.statuses.find(({ client }) => client.pid === launcher.pid);
  if (!item && !own && launcher.pid) return launcher.stop();
  const status = own ?? (await clientOf(clients, item));
  if (status) await clients.request(status.client, 'stop');
}

async function showLog(clients: Clients, launcher: Launcher, documents: Documents): Promise<void> {
  if (launcher.pid || !clients.statuses.length) return launcher.output.show();
  const status = await clientOf(clients);
  if (!status) return;
  const { lines } = await clients.request<{ lines: { level: string; text: string; time: number }[] }>(status.client, 'logs');
  const text = lines.map((line) => `${new Date(line.time * 1000).toLocaleTimeString()} ${line.level} ${line.text}`).join('\n');
  await documents.show(`relay-client ${status.client.id}.log`, text);
}

async function showStacks(clients: Clients, documents: Documents, item?: Item): Promise<void> {
  const found = item?.kind === 'rank' ? { client: item.rank.client, nodes: [item.rank.node] } : await clientOf(clients, item);
  if (!found) return;
  const only = item?.kind === 'rank' ? item.rank.target : undefined;
  const fields = only?.rank === undefined ? {} : { ranks: String(only.rank) };
  const { text } = await showProgress('Collecting stacks', () => clients.request<{ text: string }>(found.client, 'stacks', fields));
  const cwds = [...new Set(found.nodes.map(({ cwd }) => cwd ?? ''))];
  await documents.show(`stacks of ${only ? label(only) : 'all ranks'}`, text, (shown) => frameLinks(shown, cwds, folders()));
}

async function showHang(clients: Clients, documents: Documents, item?: Item): Promise<void> {
  const status = await clientOf(clients, item);
  if (!status) return;
  const { text } = await showProgress('Looking for missing ranks', () => clients.request<{ text: string }>(status.client, 'hang'));
  await documents.show(`missing ranks on ${status.client.hc}`, text);
}

async function openPlace(item?: Item | Captured): Promise<void> {
  if (!item) return;
  const { file, line }: { file?: string; line?: number } = 'rank' in item ? item.rank.target.stop ?? {} : 'rows' in item ? item : {};
  if (!file) return;
  const found = await localFile(file, 'rank' in item ? item.rank.node.cwd ?? '' : '', folders());
  if (!found) throw new Error(`${file} is not a file in the folders of this window.`);
  await openFile(found, line ?? 1);
}

function folders(): Folder[] {
  return (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === 'file').map((folder) => ({
    root: folder.uri.fsPath,
    remoteRoot: vscode.workspace.getConfiguration('relayDebug', folder).get<string>('remoteRoot', '.'),
  }));
}

// The editor's debugger has just lost its connection, and has received no reason that it could show. The agent keeps a stopped
// rank stopped, because it does not know whether its relay-client will return.
async function notifyKilled({ client, nodes }: Status): Promise<void> {
  const held = nodes.flatMap(({ targets }) => targets.filter((target) => target.attached_here));
  if (!held.length) return;
  const stopped = held.filter(({ kind }) => kind === 'stopped' || kind === 'crashed').map(label).join(', ');
  const then = stopped
    ? `Still stopped: ${stopped}. Start relay-client again, then attach or use Release Rank; otherwise, the job waits, by default for 30 minutes.`
    : 'The jobs continue to run.';
  const text = `relay-client (process ${client.pid} on '${client.hc}') was killed, and its debug sessions have ended. ${then}`;
  const start = 'Start relay-client';
  if ((await notify('Error', text, start)) === start) await startRelayClient();
}
