// The timeline: one lane for each node with its tunnel, and marks where ranks stopped, crashed or ended. Agents that have
// ended are in the lane of their node's current agent. If there are many nodes, those with something to report are on top,
// and the rest is folded.

import { clock, plural } from './elements.js';
import { isCrash } from './events.js';
import { at, kindOf } from './view.js';

const NAMESPACE = 'http://www.w3.org/2000/svg';
const LANE = 18;
const LEFT = 130;
const FEW_LANES = 8; // they are shown in the order of the nodes
const MAX_LANES = 16;
const ORDER = ['crashed', 'abandoned', 'stopped', 'waiting', 'lost', 'unreachable', 'blocked', 'debugged'];
const MIN_SPAN = 10; // seconds
const MARKS = ['mark-ended', 'mark-stopped', 'mark-crashed']; // the last one is on top
const TICK = 90; // pixels, at least, between two times

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Returns the periods in which the tunnel of a node was interrupted: pairs of start and end. */
function outages(events, now) {
  const found = [];
  let since;
  for (const event of events) {
    if (event.event === 'lost') since ??= event.time;
    if (['resumed', 'connected'].includes(event.event) && since !== undefined) {
      found.push([since, event.time]);
      since = undefined;
    }
  }
  if (since !== undefined) found.push([since, now]);
  return found;
}

function markOf(event) {
  if (isCrash(event)) return 'mark-crashed';
  if (event.event === 'stopped') return 'mark-stopped';
  return event.event === 'ended' && event.port !== undefined ? 'mark-ended' : undefined;
}

/** Returns the bar of an agent, from its first event to its end. */
function bar(events, first, end, y, x) {
  const rect = (name, from, to, rx, ...title) => draw('rect', { class: name, x: x(from), y: y + 3, width: Math.max(2, x(to) - x(from)), height: LANE - 6, rx }, ...title);
  const gaps = outages(events, end).map(([from, to]) => rect('away', from, to, 2, draw('title', {}, `no connection from ${clock(from)} to ${clock(to)}`)));
  return [rect('connected', first, end, 3), ...gaps];
}

function lane(node, own, former, y, x, now) {
  const first = own.length ? Math.min(own[0].time, node.link_since) : node.link_since;
  const parts = [
    draw('text', { x: 0, y: y + 12 }, node.name.length > 20 ? `${node.name.slice(0, 19)}…` : node.name),
    ...former.flatMap((events) => bar(events, events[0].time, events.at(-1).time, y, x)),
    ...bar(own, first, now, y, x),
  ];
  const marked = [...former.flat(), ...own].map((event) => [MARKS.indexOf(markOf(event)), event]).filter(([order]) => order >= 0);
  for (const [order, event] of marked.sort(([one], [other]) => one - other)) {
    const mark = MARKS[order];
    parts.push(draw('circle', { class: mark, cx: x(event.time), cy: y + LANE / 2, r: 4 }, draw('title', {}, `${clock(event.time)} ${event.text}`)));
  }
  return parts;
}

/** Returns a number that is lower the more a node has to report: by its ranks now, and else by its marks. */
function dullness(node, events) {
  const kinds = [...node.targets.map((target) => kindOf(node, target)), ...(node.link === 'connected' ? [] : ['lost'])];
  const isMarked = events.some((event) => markOf(event) || event.event === 'lost');
  return Math.min(...kinds.map((kind) => ORDER.indexOf(kind)).filter((place) => place >= 0), ORDER.length + (isMarked ? 0 : 1));
}

function chart(nodes, eventsOf, formerOf, from, now, label, width) {
  const x = (time) => LEFT + (Math.max(time, from) - from) / (now - from) * (width - LEFT - 6);
  const height = nodes.length * LANE + 20;
  const svg = draw('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': `${label} since ${clock(from)}` });
  nodes.forEach((node, index) => svg.append(...lane(node, eventsOf(node), formerOf(node), index * LANE, x, now)));
  const ticks = Math.min(4, Math.max(1, Math.floor((width - LEFT) / TICK)));
  for (let part = 0; part <= ticks; part += 1) {
    const time = from + (now - from) * part / ticks;
    const anchor = part === 0 ? 'start' : part === ticks ? 'end' : 'middle';
    svg.append(draw('text', { x: x(time), y: height - 5, 'text-anchor': anchor }, clock(time)));
  }
  return svg;
}

/** Shows the lanes; those of the folded nodes only if the user has opened them. */
export function showLanes(nodes, events, started, now) {
  const byAgent = new Map();
  for (const event of events) {
    if (!byAgent.has(event.agent)) byAgent.set(event.agent, []);
    byAgent.get(event.agent).push(event);
  }
  const eventsOf = (node) => byAgent.get(node.agent) ?? [];
  const agents = new Set(nodes.map(({ agent }) => agent));
  const ended = [...byAgent.values()].filter(([{ agent, host }]) => host && !agents.has(agent));
  const formerOf = (node) => ended.filter(([{ host }]) => host === node.host && nodes.find((one) => one.host === host) === node);
  const ranked = nodes.map((node) => [dullness(node, eventsOf(node)), node]);
  const interesting = ranked.filter(([place]) => place <= ORDER.length).length;
  if (nodes.length > FEW_LANES) ranked.sort(([one], [other]) => one - other);
  const count = nodes.length > FEW_LANES ? Math.min(MAX_LANES, Math.max(FEW_LANES / 2, interesting)) : nodes.length;
  const sorted = ranked.map(([, node]) => node);
  const [shown, rest] = [sorted.slice(0, count), sorted.slice(count)];
  const from = Math.min(Math.max(started, now - 3600), now - MIN_SPAN);
  const width = Math.max(280, at('lanes').clientWidth);
  at('lanes').replaceChildren(chart(shown, eventsOf, formerOf, from, now, `Timeline of ${rest.length ? `${count} of ` : ''}${plural(nodes.length, 'node')}`, width));
  at('other-lanes').hidden = !rest.length;
  const [summary, lanes] = at('other-lanes').children;
  summary.textContent = `${plural(rest.length, 'more node')}${interesting > count ? '' : ' with nothing to report'}`;
  lanes.replaceChildren(...(rest.length && at('other-lanes').open ? [chart(rest, eventsOf, formerOf, from, now, `Timeline of ${plural(rest.length, 'more node')}`, width)] : []));
}
