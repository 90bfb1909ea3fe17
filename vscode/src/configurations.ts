// Launch configurations: every rank appears in the Run drop-down list, even without a launch.json.

import * as vscode from 'vscode';
import type { Clients } from './clients';
import { debugConfiguration, notify, showError, showProgress, startDebugging, type Configuration } from './sinks';
import { describe, isReachable, label, preferReachable, type Endpoint, type Rank, type Status } from './state';

// The field of this extension's configurations that, until they are resolved, names the rank to attach to, or all ranks.
const MARK = 'relayDebug';
const ALL = 'all';
const LOCAL = '127.0.0.1';

interface Mark {
  client: string;
  agent: string | undefined; // of the rank; undefined for all ranks
  port: number | typeof ALL;
}

type Marked = vscode.DebugConfiguration & { [MARK]?: Mark; rank?: unknown; hc?: unknown };

export function configurationOf(rank: Rank, folder: vscode.WorkspaceFolder | undefined): Configuration {
  const { client, node, target } = rank;
  const port = target.local_ports[0] ?? target.port;
  return configuration(`${label(target)} on ${node.host}`, { client: client.id, agent: node.agent, port: target.port }, port, folder);
}

export function configurationOfAll({ client, ports }: Status, folder: vscode.WorkspaceFolder | undefined): Configuration {
  const port = ports.find(({ is_all_ranks }) => is_all_ranks)?.port ?? 0;
  return configuration(`all ranks on ${client.hc}`, { client: client.id, agent: undefined, port: ALL }, port, folder);
}

function configuration(
  name: string, mark: Mark, port: number, folder: vscode.WorkspaceFolder | undefined,
): Configuration {
  const settings = vscode.workspace.getConfiguration('relayDebug', folder);
  const own = {
    type: 'debugpy',
    request: 'attach',
    pathMappings: [{ localRoot: '${workspaceFolder}', remoteRoot: settings.get<string>('remoteRoot', '.') }],
    justMyCode: settings.get<boolean>('justMyCode', false),
    subProcess: mark.port !== ALL, // all ranks together may start hundreds of data loaders
  };
  return debugConfiguration(own, { name, connect: { host: LOCAL, port }, [MARK]: mark });
}

export class RankConfigurations implements vscode.DebugConfigurationProvider {
  constructor(private readonly clients: Clients) {}

  // VS Code requests the configurations of each folder, and then, for "user settings", those without a folder.
  provideDebugConfigurations(folder: vscode.WorkspaceFolder | undefined): Configuration[] {
    if (!folder && vscode.workspace.workspaceFolders?.length) return [];
    const jobs = this.clients.statuses.filter(({ nodes }) => nodes.flatMap(({ targets }) => targets).length > 1);
    return [
      ...this.clients.ranks.filter(isReachable).map((rank) => configurationOf(rank, folder)),
      ...jobs.map((status) => configurationOfAll(status, folder)),
    ];
  }

  // Opens the local port of a rank or of all ranks; most other configurations are returned unchanged. undefined cancels the session.
  async resolveDebugConfiguration(
    _folder: vscode.WorkspaceFolder | undefined, configuration: vscode.DebugConfiguration,
  ): Promise<Configuration | undefined> {
    const { [MARK]: mark = this.markOf(configuration), rank: _rank, hc: _hc, ...rest } = configuration as Marked;
    if (!mark) return this.connecting(configuration);
    try {
      const work = this.open(mark, configuration.name);
      const { local_port: port } = await showProgress(`Attaching to ${configuration.name}`, () => work);
      return debugConfiguration(rest, { connect: { host: LOCAL, port } });
    } catch (error) {
      showError(error);
      return undefined;
    }
  }

  // debugpy's adapter never answers an attach request to listen on a port in use, so the session would show nothing. A port that
  // relay-client has opened leads to the job, so this session connects to that port.
  private connecting(configuration: vscode.DebugConfiguration): Configuration {
    const { listen, ...rest } = configuration as vscode.DebugConfiguration & { listen?: { port?: unknown } };
    const port = Number(listen?.port);
    const isOpen = this.clients.statuses.some(({ ports }) => ports.some((each) => each.port === port && !each.is_editor && !each.is_forward));
    if (!listen || !isOpen) return debugConfiguration(configuration, {});
    const text = `relay-client has opened port ${port}, so '${configuration.name}' is connecting to it instead of listening.`;
    void notify('Information', `${text} Replace "listen" with "connect" in launch.json, or stop relay-client first.`);
    return debugConfiguration(rest, { connect: { host: LOCAL, port } });
  }

  // A launch.json may name a rank instead of a port: "rank": 3 or "rank": "all", and "hc" if several hybrid connections are in use.
  private markOf({ rank, hc, connect }: Marked): Mark | undefined {
    if (connect !== undefined || (rank !== ALL && typeof rank !== 'number')) return undefined;
    const matching = this.clients.ranks.filter(({ client, target }) => target.rank === rank && (hc === undefined || client.hc === hc));
    const [found] = preferReachable(matching);
    const any = this.clients.statuses.find(({ client }) => hc === undefined || client.hc === hc);
    if (rank === ALL && any) return { client: any.client.id, agent: undefined, port: ALL };
    return { client: found?.client.id ?? '', agent: found?.node.agent, port: found?.target.port ?? 0 };
  }

  private async open({ client, agent, port }: Mark, name: string): Promise<Endpoint> {
    const status = this.clients.statuses.find((each) => each.client.id === client);
    if (status && port === ALL) return this.clients.attachAll(status.client);
    const rank = this.clients.ranks.find((each) =>
      each.client.id === client && each.target.port === port && (agent === undefined || each.node.agent === agent));
    if (!rank || port === ALL) {
      throw new Error(`Cannot start '${name}': no relay-client can reach ${port === ALL ? 'these ranks' : 'this rank'}.`);
    }
    if (!isReachable(rank)) throw new Error(unreachable(rank));
    return this.clients.attach(rank.client, port);
  }
}

// Attaches to all ranks that this relay-client finds.
export async function attachAll(status: Status): Promise<void> {
  if (!hasDebugger()) return showMissingDebugger();
  const [folder] = vscode.workspace.workspaceFolders ?? [];
  await startDebugging(folder, configurationOfAll(status, folder));
}

// Attaches to a rank; if somebody else holds it, shows an error that names the holder.
export async function attach(rank: Rank): Promise<void> {
  if (!hasDebugger()) return showMissingDebugger();
  if (rank.target.holder && !rank.target.attached_here && !rank.target.is_away) {
    showError(`${label(rank.target)} on ${rank.node.host}: ${describe(rank.target)}.`);
    return;
  }
  const [folder] = vscode.workspace.workspaceFolders ?? [];
  await startDebugging(folder, configurationOf(rank, folder));
}

function unreachable({ node, target }: Rank): string {
  return `${label(target)} on ${node.host} is ${target.text}. Give one of the jobs a different --debug-port.`;
}

function showMissingDebugger(): void {
  showError('The Python Debugger extension (ms-python.debugpy) is not installed.');
}

function hasDebugger(): boolean {
  interface Contributions { contributes?: { debuggers?: { type?: string }[] } }
  return vscode.extensions.all.some((each) =>
    (each.packageJSON as Contributions).contributes?.debuggers?.some(({ type }) => type === 'debugpy'));
}
