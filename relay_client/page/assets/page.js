// The page: follows relay-client, draws the latest state at most once a second, redraws times at intervals, and reacts to
// clicks. Resources and the input of the timeline are prepared here; every other part has a file of its own.

import { Refused, follow, openSession } from './connection.js';
import { clock, make, plural, show } from './elements.js';
import { announce, facts, newest, showEvents } from './events.js';
import { showInspect } from './inspect.js';
import { showMap, toggleStrip } from './map.js';
import { showRank, showStopped } from './rank.js';
import { hasGpu, keep, nodePlots } from './resources.js';
import { showLanes } from './timeline.js';
import { at, nameOf, now, update, view } from './view.js';

const MAX_EVENTS = 1000;
const DRAW_INTERVAL = 1000; // milliseconds; changes that follow each other faster are drawn together
const CLOCK_INTERVAL = 5000; // milliseconds; durations and the timeline change without an update
const NO_GPU = 'NVIDIA GPUs are found only if their driver is loaded and nvidia-ml-py is installed in the job\'s environment';

let eventCount = 0; // received so far
let areEventsNew = false;
let drawTimer;
let drawnAt = -DRAW_INTERVAL;

function showResources() {
  const nodes = view.state.nodes.filter(({ usage }) => usage);
  at('resources').hidden = !nodes.length;
  show(at('usage'), ...nodes.map((node) => make('div', { class: 'node' },
    make('h3', {}, make('span', {}, nameOf(node)), make('span', { title: hasGpu(node) ? undefined : NO_GPU }, hasGpu(node) ? '' : 'no GPU was found')),
    make('div', { class: 'plots' }, ...nodePlots(node)))));
}

function showTimeline() {
  const nodes = view.state.nodes.map((node) => ({ ...node, name: nameOf(node) }));
  showLanes(nodes, facts(view.events), view.state.client.started, now());
}

function showAll() {
  const { client, nodes } = view.state;
  document.title = `${client.hc} · relay-debug`;
  at('name').textContent = `${client.hc} in ${client.namespace}`;
  const count = showMap();
  at('link').textContent = view.lostAt ? `states as of ${clock(view.lostAt)}`
    : `${plural(nodes.length, 'node')}, ${plural(count, 'rank')}`;
  showRank();
  showStopped();
  showInspect();
  showResources();
}

function draw() {
  drawTimer = undefined;
  drawnAt = performance.now();
  showAll();
  if (areEventsNew) showEvents();
  if (areEventsNew) showTimeline();
  areEventsNew = false;
}

/** Draws the current state: at once after a pause, and not while the page is in the background. */
function drawSoon() {
  if (document.hidden || !view.state || drawTimer !== undefined) return;
  drawTimer = setTimeout(draw, Math.max(0, drawnAt + DRAW_INTERVAL - performance.now()));
}

function choose(event) {
  const button = event.target.closest('[data-rank],[data-filter],[data-fold]');
  if (!button || !view.state) return;
  if (button.dataset.fold) {
    event.preventDefault(); // showMap opens and closes the strip
    toggleStrip(button.dataset.fold);
  } else if (button.dataset.rank) view.selected = button.dataset.rank;
  else view.filter = view.filter === button.dataset.filter ? undefined : button.dataset.filter;
  showAll();
  if (button.dataset.rank) at('rank').scrollIntoView({ block: 'nearest' });
}

document.addEventListener('click', choose);
at('other-lanes').addEventListener('toggle', () => { if (view.state) showTimeline(); });
addEventListener('resize', () => { if (view.state) showTimeline(); });
document.addEventListener('visibilitychange', drawSoon);
setInterval(() => { if (view.state && !document.hidden) { showRank(); showTimeline(); } }, CLOCK_INTERVAL);

function problem(text) {
  at('problem').textContent = text;
  at('problem').hidden = !text;
}

/** Greys out the last states, or shows the states as current. */
function markAsLast(isLast) {
  view.lostAt = isLast ? view.state?.time : undefined;
  document.body.classList.toggle('last', isLast);
  for (const button of at('inspect').querySelectorAll('button[id]')) button.disabled = isLast;
  if (!view.state) at('link').textContent = '';
  else if (isLast) showAll();
}

function receive(received, isFirst) {
  problem('');
  update(received.state);
  markAsLast(false);
  keep(view.state.nodes);
  const events = received.events.map((event) => ({ ...event, number: (eventCount += 1) }));
  view.events = newest(isFirst ? events : [...view.events, ...events], MAX_EVENTS);
  areEventsNew ||= isFirst || events.length > 0;
  if (!isFirst) announce(events);
  drawSoon();
}

try {
  await openSession();
  await follow(receive, () => {
    problem('relay-client has exited or is not responding. This page shows the last known states and reconnects once relay-client responds again. If you restart relay-client, open the new link.');
    markAsLast(true);
  });
} catch (error) {
  problem(error instanceof Refused ? error.message : String(error));
  markAsLast(true);
}
