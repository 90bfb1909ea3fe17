// Shows the state of relay-client: nodes and ranks, the selected rank, stopped ranks, stacks and the timeline.

import { Refused, ask, follow, openSession } from './connection.js';
import { clock, copyButton, duration, make, show, showItems } from './elements.js';
import { hasGpu, keep, nodePlots, rankPlots } from './resources.js';
import { showLanes } from './timeline.js';

const STATES = {
  crashed: ['✕', 'crashed'],
  stopped: ['‖', 'stopped'],
  waiting: ['…', 'waiting for a debugger'],
  debugged: ['◉', 'running, attached'],
  running: ['▸', 'running'],
  unknown: ['·', 'state not announced'],
  lost: ['○', 'no connection'],
};
const MAX_EVENTS = 1000;
const MAX_ROWS = 200; // of the newest events
const MANY_RANKS = 64;
const DRAW_INTERVAL = 1000; // milliseconds; changes that follow each other faster are drawn together
const at = (id) => document.getElementById(id);

let state;
let events = [];
let eventCount = 0; // received so far
let selected; // port of a rank
let filter; // a state, or undefined for all
let isDense = false; // many ranks: smaller tiles
let started = Date.now() / 1000;
let areEventsNew = false;
let drawTimer;
let drawnAt = -DRAW_INTERVAL;
let ahead = 0; // seconds by which the clock of this browser is ahead of relay-client's

let lostAt; // the time of the last update, if relay-client no longer answers

const now = () => lostAt ?? Date.now() / 1000 - ahead;
const nameOf = (node) => (node.node_rank === undefined ? node.host : `node ${node.node_rank} (${node.host})`);
const labelOf = (target) => (target.rank === undefined ? `port ${target.port}` : `rank ${target.rank}`);

function kindOf(node, target) {
  if (node.link !== 'connected' || target.kind === 'unreachable') return 'lost';
  return target.kind === 'running' && target.holder ? 'debugged' : target.kind;
}

/** Returns the state of a rank as text. */
function describe(node, target) {
  if (node.link !== 'connected') return `no connection to its node (${node.link})`;
  const holder = target.kind === 'running' && target.holder ? `, held by ${target.holder}` : '';
  return `${target.text || STATES.unknown[1]}${holder}`;
}

function* ranks() {
  for (const node of state.nodes) for (const target of node.targets) yield [node, target, kindOf(node, target)];
}

function showCounts() {
  const counts = {};
  for (const [, , kind] of ranks()) counts[kind] = (counts[kind] ?? 0) + 1;
  show(at('counts'), ...Object.keys(STATES).filter((kind) => counts[kind] || filter === kind).map((kind) => {
    const [sign, words] = STATES[kind];
    return make('button', { type: 'button', class: kind, 'data-key': kind, 'data-filter': kind, 'aria-pressed': String(filter === kind) },
      make('strong', {}, String(counts[kind] ?? 0)), `${sign} ${words}`);
  }));
}

function tile(node, target) {
  const kind = kindOf(node, target);
  const text = `${labelOf(target)}, ${describe(node, target)}`;
  return make('button', {
    type: 'button',
    class: `tile ${kind}${filter && filter !== kind ? ' faded' : ''}`,
    'data-key': `tile ${target.port}`,
    'data-port': String(target.port),
    'aria-pressed': String(selected === target.port),
    'aria-label': text,
    title: text,
  }, isDense && kind === 'running' ? `${target.rank ?? target.port}` : `${STATES[kind][0]}${isDense ? '' : ' '}${target.rank ?? target.port}`);
}

/** Returns the name of the run, with a link to its page if the node announces one. */
function runLink(node) {
  if (!/^https:\/\//.test(node.run_url ?? '')) return node.run;
  return make('a', { href: node.run_url, target: '_blank', rel: 'noopener noreferrer', 'data-key': `run ${node.agent}` }, node.run);
}

function tripOf(node) {
  if (node.link !== 'connected') return node.link;
  return node.round_trip === undefined ? '' : `${(node.round_trip * 1000).toFixed(node.round_trip < 0.01 ? 1 : 0)} ms`;
}

function nodeCard(node) {
  const isAway = node.link !== 'connected';
  return make('div', { class: `node${isAway ? ' away' : ''}`, role: 'group', 'aria-label': nameOf(node) },
    make('h3', {}, make('span', { title: nameOf(node) }, nameOf(node)), make('span', { class: 'trip', title: 'round trip' }, tripOf(node))),
    node.run ? make('p', {}, 'run ', runLink(node)) : '',
    isAway && node.link_reason ? make('p', { class: 'away-text' }, node.link_reason) : '',
    make('div', { class: 'tiles' }, ...node.targets.map((target) => tile(node, target))),
    ...(node.ended ?? []).slice(-3).map((ended) => make('p', {}, `port ${ended.port} ${ended.how}`)),
  );
}

/** Returns a text that changes whenever the card of a node changes, except for its round trip. */
function cardContent(node) {
  const isSelected = node.targets.some((target) => target.port === selected);
  const targets = node.targets.map((target) => ({ ...target, cpu: undefined, memory: undefined }));
  return JSON.stringify([{ ...node, round_trip: undefined, usage: undefined, targets }, isSelected && selected, filter, isDense]);
}

function link(target) {
  const which = target.rank === undefined ? `port=${target.port}` : `rank=${target.rank}`;
  return `vscode://relay-debug.relay-debug/attach?${which}&hc=${encodeURIComponent(state.client.hc)}`;
}

function showRank() {
  const [node, target, kind] = [...ranks()].find(([, found]) => found.port === selected) ?? [];
  if (!target) {
    show(at('rank'), make('p', { class: 'quiet' }, selected === undefined ? 'Select a rank to see what it is doing and to attach to it.' : 'This rank has ended.'));
    return;
  }
  const stop = target.stop;
  const since = kind === 'debugged' ? target.held_since : target.since;
  const rows = [
    ['state', describe(node, target)],
    ['since', since ? `${clock(since)} (${duration(now() - since)})` : undefined],
    ['reason', stop?.reason],
    ['in', stop?.function],
    ['file', stop?.file],
    ['debugger', target.holder],
    ['script', target.script],
    ['process', target.pid],
    ['node', nameOf(node)],
    ['directory', node.cwd],
    ['port', target.local_ports.length ? `${target.local_ports.join(', ')} on 127.0.0.1` : `${target.port}, not opened here`],
  ].filter(([, value]) => value !== undefined);
  const command = target.rank === undefined ? `relay-client --ports ${target.port}` : `relay-client attach ${target.rank}`;
  show(at('rank'),
    make('h2', {}, `${labelOf(target)}${target.world ? ` of ${target.world}` : ''}`, make('span', { class: `badge ${kind}` }, STATES[kind][1])),
    make('dl', {}, ...rows.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, String(value))])),
    make('div', { class: 'plots' }, ...rankPlots(node, target.port)),
    make('div', { class: 'actions' },
      make('a', { class: 'button main', href: link(target), 'data-key': 'attach' }, 'Attach in VS Code'),
      copyButton('Copy command', command),
      target.place ? copyButton('Copy location', stop?.file && stop.line ? `${stop.file}:${stop.line}` : target.place) : '',
    ));
}

function stoppedRow(node, target, kind) {
  const place = target.place || (kind === 'crashed' ? '' : 'location unknown');
  const since = target.since;
  const why = kind === 'crashed' ? target.text : target.stop?.reason ?? '';
  const who = target.holder ? `held by ${target.holder}` : kind === 'crashed' ? 'waiting for a debugger' : '';
  return make('li', {},
    make('button', { type: 'button', class: kind, 'data-key': `row ${target.port}`, 'data-port': String(target.port) }, labelOf(target)),
    make('span', { class: 'code', title: target.stop?.file ?? '' }, place, target.stop?.function ? ` in ${target.stop.function}` : ''),
    make('span', { class: 'why' }, [why, since ? `since ${clock(since)}` : '', who].filter(Boolean).join(', ')));
}

function showStopped() {
  const rows = [...ranks()].filter(([, , kind]) => kind === 'stopped' || kind === 'crashed');
  show(at('stopped'), ...(rows.length ? rows.map((row) => stoppedRow(...row)) : [make('li', { class: 'quiet' }, 'No rank is stopped.')]));
}

const NO_GPU = 'NVIDIA GPUs are found only if their driver is loaded and nvidia-ml-py is installed in the job\'s environment';

function showResources() {
  const nodes = state.nodes.filter(({ usage }) => usage);
  at('resources').hidden = !nodes.length;
  show(at('usage'), ...nodes.map((node) => make('div', { class: 'node' },
    make('h3', {}, make('span', {}, nameOf(node)), make('span', { title: hasGpu(node) ? undefined : NO_GPU }, hasGpu(node) ? '' : 'no GPU was found')),
    make('div', { class: 'plots' }, ...nodePlots(node)))));
}

function showEvents() {
  const row = (event) => make('li', {}, make('time', {}, clock(event.time)), make('span', {}, event.text));
  showItems(at('events'), events.slice(-MAX_ROWS).reverse().map((event) => [event.number, '', () => row(event)]));
  showLanes(at('lanes'), state.nodes.map((node) => ({ ...node, name: nameOf(node) })), events, started, now());
}

function showAll() {
  document.title = `${state.client.hc} · relay-debug`;
  at('name').textContent = `${state.client.hc} in ${state.client.namespace}`;
  const count = [...ranks()].length;
  at('link').textContent = lostAt ? `states as of ${clock(lostAt)}`
    : `${state.nodes.length} node${state.nodes.length === 1 ? '' : 's'}, ${count} rank${count === 1 ? '' : 's'}`;
  isDense = count > MANY_RANKS;
  at('nodes').classList.toggle('dense', isDense);
  at('empty').hidden = state.nodes.length > 0;
  showCounts();
  showItems(at('nodes'), state.nodes.map((node) => [node.agent, cardContent(node), () => nodeCard(node)]));
  state.nodes.forEach((node, index) => {
    const trip = at('nodes').children[index].querySelector('.trip');
    if (trip.textContent !== tripOf(node)) trip.textContent = tripOf(node);
  });
  showRank();
  showStopped();
  showResources();
}

function draw() {
  drawTimer = undefined;
  drawnAt = performance.now();
  showAll();
  if (areEventsNew) showEvents();
  areEventsNew = false;
}

/** Draws the current state: at once after a pause, and not while the page is in the background. */
function drawSoon() {
  if (document.hidden || !state || drawTimer !== undefined) return;
  drawTimer = setTimeout(draw, Math.max(0, drawnAt + DRAW_INTERVAL - performance.now()));
}

async function report(path, render) {
  at('stacks').setAttribute('aria-busy', 'true');
  try {
    const result = await ask(path);
    if (result.error) show(at('stacks'), make('p', { class: 'quiet' }, `${result.error.sentence}${result.error.hint ? ` (${result.error.hint})` : ''}`));
    else render(result);
  } catch (error) {
    show(at('stacks'), make('p', { class: 'quiet' }, error instanceof Refused ? error.message : 'relay-client did not answer'));
  }
  at('stacks').removeAttribute('aria-busy');
}

function showStacks({ groups }) {
  show(at('stacks'), ...groups.map((group) => {
    const names = group.ranks.length ? `rank${group.ranks.length > 1 ? 's' : ''} ${ranges(group.ranks)}` : `port ${group.ports.join(', ')}`;
    const main = group.threads.find((thread) => thread.main) ?? group.threads[0];
    const lines = (main?.frames ?? []).map((frame) => `${frame.file}:${frame.line} ${frame.function}`).join('\n');
    return make('div', { class: 'group' },
      make('h3', {}, `${names}: ${group.place || group.error || 'no Python code'}`, lines ? copyButton('Copy', lines) : ''),
      make('pre', { class: 'code' }, lines));
  }));
}

/** Returns numbers as ranges: 0-2,5. */
function ranges(numbers) {
  const sorted = [...numbers].sort((one, other) => one - other);
  const parts = [];
  for (const number of sorted) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(',');
}

/** Moves the focus between the tiles with the arrow keys. */
function moveFocus(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.classList.contains('tile')) return;
  const tiles = [...document.querySelectorAll('.tile')];
  tiles[tiles.indexOf(event.target) + step]?.focus();
  event.preventDefault();
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-port],[data-filter]');
  if (!button || !state) return;
  if (button.dataset.port) selected = Number(button.dataset.port);
  else filter = filter === button.dataset.filter ? undefined : button.dataset.filter;
  showAll();
  if (button.dataset.port) at('rank').scrollIntoView({ block: 'nearest' });
});
at('nodes').addEventListener('keydown', moveFocus);
at('stacks-button').addEventListener('click', () => report('/stacks', showStacks));
at('hang-button').addEventListener('click', () => report('/hang', ({ text }) => show(at('stacks'), make('pre', { class: 'code' }, text))));
addEventListener('resize', () => { if (state) showEvents(); });
document.addEventListener('visibilitychange', drawSoon);
setInterval(() => { if (state && !document.hidden) { showRank(); showEvents(); } }, 5000);

function problem(text) {
  at('problem').textContent = text;
  at('problem').hidden = !text;
}

/** Greys out the last states, or shows the states as current. */
function markAsLast(isLast) {
  lostAt = isLast ? state?.time : undefined;
  document.body.classList.toggle('last', isLast);
  at('stacks-button').disabled = at('hang-button').disabled = isLast;
  if (!state) at('link').textContent = '';
  else if (isLast) showAll();
}

try {
  await openSession();
  await follow((update, isFirst) => {
    problem('');
    state = update.state;
    markAsLast(false);
    keep(state.nodes);
    ahead = Date.now() / 1000 - state.time;
    started = state.client.started;
    const received = update.events.map((event) => ({ ...event, number: (eventCount += 1) }));
    events = (isFirst ? received : [...events, ...received]).slice(-MAX_EVENTS);
    areEventsNew ||= isFirst || update.events.length > 0;
    drawSoon();
  }, () => {
    problem('relay-client has exited or is not responding. This page shows the last known states and reconnects once relay-client responds again. If you restart relay-client, open the new link.');
    markAsLast(true);
  });
} catch (error) {
  problem(error instanceof Refused ? error.message : String(error));
  markAsLast(true);
}
