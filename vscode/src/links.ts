// Links that attach: vscode://relay-debug.relay-debug/attach?rank=3 in a browser or chat, "attach to rank 3" in a terminal.

import * as vscode from 'vscode';
import type { Clients } from './clients';
import { attach } from './configurations';
import { notify, pick, showError, startRelayClient } from './sinks';
import { label, preferReachable, type Rank } from './state';

const IN_TERMINAL = [
  { pattern: /\battach(?:es)? to rank (\d{1,6})\b/g, field: 'rank' },
  { pattern: /\b(?:F5|a debugger)\b[^:;,]{0,80}? (?:on|to) port (\d{1,5})\b/g, field: 'port' },
] as const;

export interface Wanted {
  rank?: number;
  port?: number;
  hc?: string;
}

interface RankLink extends vscode.TerminalLink {
  wanted: Wanted;
}

export class TerminalLinks implements vscode.TerminalLinkProvider<RankLink> {
  constructor(private readonly clients: Clients) {}

  provideTerminalLinks({ line }: vscode.TerminalLinkContext): RankLink[] {
    return IN_TERMINAL.flatMap(({ pattern, field }) => [...line.matchAll(pattern)].map((match) => ({
      startIndex: match.index,
      length: match[0].length,
      tooltip: `Attach to ${field} ${match[1]}`,
      wanted: { [field]: Number(match[1]) },
    })));
  }

  handleTerminalLink({ wanted }: RankLink): Promise<void> {
    return attachTo(this.clients, wanted);
  }
}

// A web page can open such a link if the user confirms. The link can only attach to a rank of a running relay-client.
export class RankUris implements vscode.UriHandler {
  constructor(private readonly clients: Clients) {}

  async handleUri(uri: vscode.Uri): Promise<void> {
    const query = new URLSearchParams(uri.query);
    const wanted: Wanted = {};
    for (const field of ['rank', 'port'] as const) {
      const text = query.get(field);
      if (text && /^\d{1,6}$/.test(text)) wanted[field] = Number(text);
    }
    const hc = query.get('hc');
    if (hc) wanted.hc = hc;
    if (uri.path !== '/attach' || (wanted.rank ?? wanted.port) === undefined) {
      showError('Invalid link: use attach?rank=3 or attach?port=5681.');
      return;
    }
    await attachTo(this.clients, wanted);
  }
}

export async function attachTo(clients: Clients, wanted: Wanted): Promise<void> {
  const rank = await choose(preferReachable(clients.ranks.filter((each) => matches(each, wanted))));
  if (rank) return attach(rank);
  if (rank === null) return;
  const name = wanted.rank === undefined ? `port ${wanted.port}` : `rank ${wanted.rank}`;
  if (clients.statuses.length) {
    showError(`${name} is not registered.`);
    return;
  }
  const start = 'Start relay-client';
  if ((await notify('Error', `${name}: no relay-client is running.`, start)) === start) await startRelayClient();
}

function matches({ client, target }: Rank, wanted: Wanted): boolean {
  if (wanted.hc !== undefined && client.hc !== wanted.hc) return false;
  return wanted.port === undefined ? target.rank === wanted.rank
    : target.port === wanted.port || target.local_ports.includes(wanted.port);
}

// The only rank, or the one that the user picks: undefined if there is none, null if the user picks none.
async function choose(ranks: Rank[]): Promise<Rank | undefined | null> {
  const unique = ranks.filter((rank, at) => at === ranks.findIndex((each) => isSame(each, rank)));
  if (unique.length < 2) return unique[0];
  return (await pickRank(unique)) ?? null;
}

// Two relay-clients on one hybrid connection see the same processes.
function isSame(one: Rank, other: Rank): boolean {
  return one.node.agent === other.node.agent && one.target.port === other.target.port;
}

export async function pickRank(ranks: Rank[]): Promise<Rank | undefined> {
  const choices = ranks.map((rank) => ({
    label: label(rank.target),
    description: `${rank.node.host}, '${rank.client.hc}', port ${rank.target.port}`,
    value: rank,
  }));
  return pick(choices, 'Which rank?');
}
