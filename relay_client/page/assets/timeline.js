// The timeline: one lane for each node with its tunnel, and marks where ranks stopped, crashed or ended.

import { clock } from './elements.js';
import { isCrash } from './events.js';

const NAMESPACE = 'http://www.w3.org/2000/svg';
const LANE = 18;
const LEFT = 130;
const MAX_LANES = 32;
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

function lane(node, events, y, x, now) {
  const own = events.filter((event) => event.agent === node.agent);
  const first = own.length ? Math.min(own[0].time, node.link_since) : node.link_since;
  const parts = [
    draw('text', { x: 0, y: y + 12 }, node.name.length > 20 ? `${node.name.slice(0, 19)}…` : node.name),
    draw('rect', { class: 'connected', x: x(first), y: y + 3, width: Math.max(2, x(now) - x(first)), height: LANE - 6, rx: 3 }),
  ];
  for (const [from, to] of outages(own, now)) {
    parts.push(draw('rect', { class: 'away', x: x(from), y: y + 3, width: Math.max(2, x(to) - x(from)), height: LANE - 6, rx: 2 },
      draw('title', {}, `no connection from ${clock(from)} to ${clock(to)}`)));
  }
  const marked = own.map((event) => [MARKS.indexOf(markOf(event)), event]).filter(([order]) => order >= 0);
  for (const [order, event] of marked.sort(([one], [other]) => one - other)) {
    const mark = MARKS[order];
    parts.push(draw('circle', { class: mark, cx: x(event.time), cy: y + LANE / 2, r: 4 }, draw('title', {}, `${clock(event.time)} ${event.text}`)));
  }
  return parts;
}

/** Shows the lanes in an element. */
export function showLanes(element, nodes, events, started, now) {
  const width = Math.max(280, element.clientWidth);
  const from = Math.min(Math.max(started, now - 3600), now - MIN_SPAN);
  const x = (time) => LEFT + (Math.max(time, from) - from) / (now - from) * (width - LEFT - 6);
  const shown = nodes.slice(0, MAX_LANES);
  const height = shown.length * LANE + 20;
  const svg = draw('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': `Timeline of ${nodes.length} nodes since ${clock(from)}` });
  shown.forEach((node, index) => svg.append(...lane(node, events, index * LANE, x, now)));
  const ticks = Math.min(4, Math.max(1, Math.floor((width - LEFT) / TICK)));
  for (let part = 0; part <= ticks; part += 1) {
    const time = from + (now - from) * part / ticks;
    const anchor = part === 0 ? 'start' : part === ticks ? 'end' : 'middle';
    svg.append(draw('text', { x: x(time), y: height - 5, 'text-anchor': anchor }, clock(time)));
  }
  element.replaceChildren(svg, ...(nodes.length > MAX_LANES ? [`and ${nodes.length - MAX_LANES} more nodes`] : []));
}
