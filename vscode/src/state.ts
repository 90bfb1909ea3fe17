// The state and events of a relay-client as its control socket sends them, and their texts.

import type { Attached, ClientId, Node, Target } from './controlTypes';

export type * from './controlTypes';

// The port on this machine to which a debugger connects.
export type Endpoint = Pick<Attached, 'local_port'>;

// One rank, with the relay-client and the node through which it is reached.
export interface Rank {
  client: ClientId;
  node: Node;
  target: Target;
}

const UNREACHABLE = 'unreachable'; // the kind of a rank whose port leads to the rank of another job

export function isReachable({ target }: Rank): boolean {
  return target.kind !== UNREACHABLE;
}

// The ranks that can be reached, or else all of them.
export function preferReachable(ranks: Rank[]): Rank[] {
  const reachable = ranks.filter(isReachable);
  return reachable.length ? reachable : ranks;
}

export function label(target: Target): string {
  return target.rank === undefined ? `port ${target.port}` : `rank ${target.rank}`;
}

export function nodeLabel(node: Node): string {
  return node.node_rank === undefined ? node.host : `node ${node.node_rank} (${node.host})`;
}

// What a rank is doing, and who debugs it: "stopped at train.py:41 · held by alice@laptop", or "running · attached here".
export function describe(target: Target): string {
  const who = target.attached_here ? 'attached here' : target.holder && `held by ${holder(target)}`;
  return [target.text, who].filter(Boolean).join(' · ');
}

function holder(target: Target): string | undefined {
  return target.holder && (target.is_away ? `${target.holder} (not connected)` : target.holder);
}

// The same for a narrow view, in which the end of a row is cut off: "train.py:41 · alice@laptop". An icon shows the kind.
export function describeShortly(target: Target): string {
  const text = target.kind === 'stopped' && target.place ? target.place : target.text;
  if (isAbandoned(target)) return `not connected · ${text}`;
  return [text, target.attached_here ? 'attached here' : holder(target)].filter(Boolean).join(' · ');
}

// A rank that a debugger has stopped whose relay-client is gone. It stays stopped until somebody attaches to it or releases it.
export function isAbandoned(target: Target): boolean {
  return target.is_away && !target.attached_here && (target.kind === 'stopped' || target.kind === 'crashed');
}

export function describeNode(node: Node): string {
  if (node.link !== 'connected') return node.link_reason ? `${node.link}: ${node.link_reason}` : node.link;
  return node.round_trip === undefined ? 'connected' : `${(node.round_trip * 1000).toFixed(0)} ms`;
}
