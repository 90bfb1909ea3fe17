// The map of the job: a count for each state, a card for each node with a tile for each rank, and strips of folded nodes.

import { make, plural, ranges, show, showItems } from './elements.js';
import { STATES, at, describe, keyOf, kindOf, labelOf, nameOf, ranks, view } from './view.js';

const MANY_RANKS = 64;
const MANY_NODES = 8; // a job with more nodes does not fit a window
const HEALTHY = ['running', 'unknown'];

function showCounts() {
  const counts = {};
  for (const [, , kind] of ranks()) counts[kind] = (counts[kind] ?? 0) + 1;
  show(at('counts'), ...Object.keys(STATES).filter((kind) => counts[kind] || view.filter === kind).map((kind) => {
    const [sign, words] = STATES[kind];
    return make('button', { type: 'button', class: kind, 'data-key': kind, 'data-filter': kind, 'aria-pressed': String(view.filter === kind) },
      make('strong', {}, String(counts[kind] ?? 0)), `${sign} ${words}`);
  }));
}

function tile(node, target) {
  const kind = kindOf(node, target);
  const key = keyOf(node, target);
  const text = `${labelOf(target)}, ${describe(node, target)}`;
  return make('button', {
    type: 'button',
    class: `tile ${kind}${view.filter && view.filter !== kind ? ' faded' : ''}`,
    'data-key': `tile ${key}`,
    'data-rank': key,
    'data-port': String(target.port),
    'aria-pressed': String(view.selected === key),
    'aria-label': text,
    title: text,
    tabindex: '-1',
  }, view.isDense && kind === 'running' ? `${target.rank ?? target.port}` : `${STATES[kind][0]}${view.isDense ? '' : ' '}${target.rank ?? target.port}`);
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
  return make('div', { class: `node${isAway ? ' away' : ''}`, role: 'group', 'aria-label': nameOf(node), 'data-agent': node.agent },
    make('h3', {}, make('span', { title: nameOf(node) }, nameOf(node)), make('span', { class: 'trip', title: 'round trip' }, tripOf(node))),
    node.run ? make('p', {}, 'run ', runLink(node)) : '',
    isAway && node.link_reason ? make('p', { class: 'away-text' }, node.link_reason) : '',
    make('div', { class: 'tiles' }, ...node.targets.map((target) => tile(node, target))),
    ...(node.ended ?? []).slice(-3).map((ended) => make('p', {}, `${labelOf(ended)} ${ended.how}`)),
  );
}

/** Returns a text that changes whenever the card of a node changes, except for its round trip. */
function cardContent(node) {
  const isSelected = node.targets.some((target) => keyOf(node, target) === view.selected);
  return JSON.stringify([{ ...node, round_trip: undefined, usage: undefined }, isSelected && view.selected, view.filter, view.isDense]);
}

const cardItem = (node) => [node.agent, cardContent(node), () => nodeCard(node)];

/** Returns what all ranks of a node do, after which it can be folded; undefined if they differ. */
function commonKind(node) {
  if (node.link !== 'connected') return 'lost';
  const kinds = new Set(node.targets.map((target) => kindOf(node, target)));
  if (kinds.size > 1) return undefined;
  return `${[...kinds][0] ?? 'none'}${node.ended?.length ? ' ended' : ''}`;
}

const isOpen = (kind) => view.unfolded.has(kind) || view.filter === kind;

/**
 * Returns the nodes of each strip, by what their ranks do: healthy nodes, and many that report the same. The node of the
 * selected rank is in none that is closed.
 */
function foldedNodes(nodes) {
  const strips = new Map();
  if (nodes.length <= MANY_NODES) return strips;
  for (const node of nodes) {
    const kind = commonKind(node);
    if (kind === undefined || (!isOpen(kind) && view.selected?.startsWith(`${node.agent} `))) continue;
    if (!strips.has(kind)) strips.set(kind, []);
    strips.get(kind).push(node);
  }
  for (const [kind, members] of strips) if (!HEALTHY.includes(kind) && members.length <= MANY_NODES) strips.delete(kind);
  return strips;
}

function strip(kind) {
  return make('details', { class: 'strip', 'data-strip': kind }, make('summary', { 'data-fold': kind, 'data-key': `fold ${kind}` }), make('div', { class: 'cards' }));
}

function updateStrip(kind, nodes) {
  const element = at('nodes').querySelector(`[data-strip="${kind}"]`);
  const [state, ended] = kind.split(' ');
  const count = nodes.reduce((sum, node) => sum + node.targets.length, 0);
  const between = ['lost', 'unknown'].includes(state) ? ': ' : ' ';
  const numbers = nodes.map((node) => node.node_rank);
  element.open = isOpen(kind);
  element.classList.toggle('faded', Boolean(view.filter) && view.filter !== state);
  show(element.firstChild,
    make('span', { class: `badge ${state}`, 'aria-hidden': 'true' }, STATES[state]?.[0] ?? '·'),
    `${plural(nodes.length, 'node')}, ${count ? `${plural(count, 'rank')}${between}${STATES[state][1]}` : 'no ranks'}${ended ? '; others have ended' : ''}`,
    ' ', numbers.includes(undefined) ? '' : make('span', { class: 'quiet' }, `node${numbers.length === 1 ? '' : 's'} ${ranges(numbers)}`));
  showItems(element.lastChild, element.open ? nodes.map(cardItem) : []);
}

/** Opens or closes a strip of nodes. */
export function toggleStrip(kind) {
  if (!isOpen(kind)) view.unfolded.add(kind);
  else view.unfolded.delete(kind);
  if (view.filter === kind) view.filter = undefined;
}

/** Shows all nodes and ranks; returns the number of ranks. */
export function showMap() {
  const { nodes } = view.state;
  const count = [...ranks()].length;
  view.isDense = count > MANY_RANKS;
  at('nodes').classList.toggle('dense', view.isDense);
  at('nodes').classList.toggle('many', nodes.length > MANY_NODES);
  at('empty').hidden = nodes.length > 0;
  showCounts();
  const strips = foldedNodes(nodes);
  const folded = new Set([...strips.values()].flat());
  showItems(at('nodes'), [
    ...nodes.filter((node) => !folded.has(node)).map(cardItem),
    ...[...strips.keys()].map((kind) => [`fold ${kind}`, '', () => strip(kind)]),
  ]);
  for (const [kind, members] of strips) updateStrip(kind, members);
  const byAgent = new Map(nodes.map((node) => [node.agent, node]));
  for (const card of at('nodes').querySelectorAll('.node')) {
    const [trip, text] = [card.querySelector('.trip'), tripOf(byAgent.get(card.dataset.agent))];
    if (trip.textContent !== text) trip.textContent = text;
  }
  setTabStop();
  return count;
}

const tiles = () => [...at('nodes').querySelectorAll('.tile')];

/** Makes one tile the only one that the Tab key reaches: the focused, the selected or the first one. */
function setTabStop() {
  const all = tiles();
  const chosen = all.find((each) => each === document.activeElement) ?? all.find(({ dataset }) => dataset.rank === view.selected) ?? all[0];
  for (const each of all) each.tabIndex = each === chosen ? 0 : -1;
}

/** Returns the nearest tile in the next row above or below. */
function inNextRow(from, all, direction) {
  const { left, top } = from.getBoundingClientRect();
  const places = all.map((each) => [each, each.getBoundingClientRect()])
    .map(([each, box]) => [each, (box.top - top) * direction, Math.abs(box.left - left)]).filter(([, down]) => down > 1);
  const row = Math.min(...places.map(([, down]) => down));
  return places.filter(([, down]) => down < row + 1).sort((one, other) => one[2] - other[2])[0]?.[0];
}

function moveFocus(event) {
  if (!event.target.classList.contains('tile')) return;
  const all = tiles();
  const index = all.indexOf(event.target);
  const next = {
    ArrowRight: () => all[index + 1],
    ArrowLeft: () => all[index - 1],
    ArrowDown: () => inNextRow(event.target, all, 1),
    ArrowUp: () => inNextRow(event.target, all, -1),
    Home: () => all[0],
    End: () => all.at(-1),
  }[event.key];
  if (!next) return;
  next()?.focus();
  event.preventDefault();
}

at('nodes').addEventListener('keydown', moveFocus);
at('nodes').addEventListener('focusin', setTabStop);
