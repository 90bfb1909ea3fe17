// What the page shows: the last update of relay-client, and what the user has chosen.

export const STATES = {
  crashed: ['✕', 'crashed'],
  abandoned: ['⊘', 'stopped, client gone'],
  stopped: ['‖', 'stopped'],
  waiting: ['…', 'waiting for a debugger'],
  blocked: ['◊', 'waiting for other ranks'],
  debugged: ['◉', 'running, attached'],
  running: ['▸', 'running'],
  unknown: ['·', 'state not announced'],
  unreachable: ['○', 'unreachable'],
  lost: ['○', 'no connection'],
};

export const view = {
  state: undefined,
  events: [],
  selected: undefined, // key of a rank
  filter: undefined, // a state, or undefined for all
  unfolded: new Set(), // the strips of nodes that the user has opened
  isDense: false, // many ranks: smaller tiles
  ahead: 0, // seconds by which the clock of this browser is ahead of relay-client's
  lostAt: undefined, // the time of the last update, if relay-client no longer answers
};

const labels = new Map(); // by key: the label of each rank that was shown, for ranks that have ended

export const at = (id) => document.getElementById(id);
export const now = () => view.lostAt ?? Date.now() / 1000 - view.ahead;
export const nameOf = (node) => (node.node_rank === undefined ? node.host : `node ${node.node_rank} (${node.host})`);
export const labelOf = (target) => (target.rank === undefined ? `port ${target.port}` : `rank ${target.rank}`);

/** Returns the key of a rank; jobs may have the same ports. */
export const keyOf = (node, { port }) => `${node.agent} ${port}`;

/** Returns the label of a rank that may have ended. */
export const labelOfKey = (key) => labels.get(key) ?? `port ${key.split(' ').at(-1)}`;

/** Returns whether the client that holds a rank has no connection, so that nobody can let the rank continue. */
export const isClientGone = (target) => target.is_away;

/** Returns the user who holds a rank; undefined if nobody does. */
export const holderOf = ({ holder, is_away: isAway }) => holder && (isAway ? `${holder} (not connected)` : holder);

export function kindOf(node, target) {
  if (node.link !== 'connected') return 'lost';
  if (target.kind === 'stopped' && isClientGone(target)) return 'abandoned';
  if (target.kind === 'running' && target.waits) return 'blocked';
  return target.kind === 'running' && target.holder ? 'debugged' : target.kind;
}

/** Returns the state of a rank as text. */
export function describe(node, target) {
  if (node.link !== 'connected') return `no connection to its node (${node.link})`;
  const holder = (target.holder && ['abandoned', 'debugged', 'blocked'].includes(kindOf(node, target))) ? `, held by ${holderOf(target)}` : '';
  const reason = target.kind === 'stopped' && target.stop ? ` (${target.stop.reason})` : '';
  return `${target.text || STATES.unknown[1]}${reason}${holder}`;
}

/** Yields each rank: its node, its target and its state. */
export function* ranks() {
  for (const node of view.state.nodes) for (const target of node.targets) yield [node, target, kindOf(node, target)];
}

export function selectedRank() {
  return [...ranks()].find(([node, target]) => keyOf(node, target) === view.selected) ?? [];
}

/** Replaces the state. */
export function update(state) {
  view.state = state;
  view.ahead = Date.now() / 1000 - state.time;
  for (const [node, target] of ranks()) labels.set(keyOf(node, target), labelOf(target));
}
