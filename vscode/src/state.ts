// The state and events of a relay-client as its control socket sends them: docs/reference/control-socket.md.

export interface ClientId {
  id: string;
  pid: number;
  namespace: string;
  hc: string;
  command: string;
  started: number;
}

export interface Stop {
  reason: string;
  since: number;
  file?: string;
  line?: number;
}

export interface Target {
  port: number;
  rank?: number;
  pid?: number;
  script?: string;
  state?: string;
  detail?: string;
  since?: number;
  holder?: string;
  local_ports: number[];
  attached_here: boolean;
  stop?: Stop;
  activity?: string;
}

export interface Node {
  agent: string;
  host: string;
  link: string;
  link_since: number;
  link_reason?: string;
  round_trip?: number;
  node_rank?: number;
  cwd?: string;
  targets: Target[];
}

export interface Port {
  port: number;
  is_all_ranks?: boolean;
  is_forward?: boolean;
  is_editor?: boolean;
}

export interface Status {
  client: ClientId;
  time: number;
  nodes: Node[];
  ports: Port[];
}

export interface RelayEvent {
  event: string;
  text: string;
  client: string;
  rank?: number;
  port?: number;
  state?: string;
  level?: string;
}

// The address to which a debugger connects.
export interface Endpoint {
  host: string;
  local_port: number;
}

export interface Attached extends Endpoint {
  port: number;
  rank?: number;
  node: string;
}

// One rank, with the relay-client and the node through which it is reached.
export interface Rank {
  client: ClientId;
  node: Node;
  target: Target;
}

export function label(target: Target): string {
  return target.rank === undefined ? `port ${target.port}` : `rank ${target.rank}`;
}

export function nodeLabel(node: Node): string {
  return node.node_rank === undefined ? node.host : `node ${node.node_rank} (${node.host})`;
}

// "train.py:41", or "" if the place is unknown.
export function place(stop: Stop): string {
  const name = stop.file?.split(/[\\/]/).pop() ?? '';
  return name && stop.line !== undefined ? `${name}:${stop.line}` : name;
}

// The state of a rank, in a few words: "stopped at train.py:41 · held by alice@laptop", or "running · attached here".
export function describe(target: Target): string {
  const parts: string[] = [];
  if (target.stop) {
    const where = place(target.stop);
    parts.push(where ? `stopped at ${where}` : 'stopped');
  } else if (target.activity && !target.attached_here) {
    parts.push(target.activity);
  } else if (target.state) {
    parts.push(target.detail ? `${target.state}: ${target.detail}` : target.state);
  }
  if (target.attached_here) parts.push('attached here');
  else if (target.holder) parts.push(`held by ${target.holder}`);
  return parts.join(' · ');
}

// The state of a rank for a narrow view, in which the end of a row is cut off: "train.py:41 · alice@laptop". An icon shows the state.
export function describeShortly(target: Target): string {
  const stoppedAt = target.stop ? place(target.stop) : /^stopped at (.+)$/.exec(target.activity ?? '')?.[1];
  const state = stoppedAt || (target.stop ? 'stopped' : (!target.attached_here && target.activity) || target.state);
  return [state, target.attached_here ? 'attached here' : target.holder, target.stop ? '' : target.detail].filter(Boolean).join(' · ');
}

export function describeNode(node: Node): string {
  if (node.link !== 'connected') return node.link_reason ? `${node.link}: ${node.link_reason}` : node.link;
  return node.round_trip === undefined ? 'connected' : `${(node.round_trip * 1000).toFixed(0)} ms`;
}
