// The events: those that concern a person, and in a folded list all others.

import { clock, make, showItems } from './elements.js';
import { at, view } from './view.js';

const MAX_ROWS = 200; // of the newest events
const CONCERNING = ['held', 'free', 'stopped', 'ended', 'lost', 'resumed'];

/** Returns whether an event is a crash: a rank is held at an uncaught exception, by its agent or by a debugger. */
export const isCrash = (event) => (event.event === 'state' && event.state === 'crashed') || (event.event === 'stopped' && Boolean(event.detail));

/** Returns whether an event concerns a person: a rank needs somebody, has ended or is held, or a node was lost. */
function concerns(event) {
  return CONCERNING.includes(event.event) || (event.event === 'state' && ['crashed', 'waiting'].includes(event.state));
}

function combined(crash, stop) {
  const place = stop?.file && stop.line ? ` (${stop.file.split(/[\\/]/).at(-1)}:${stop.line})` : '';
  return { ...crash, text: crash.text + place };
}

/** Returns one event for each fact: a stop that gets its place later, or that belongs to a crash, is combined with it. */
export function facts(events) {
  const found = [];
  const halts = new Map(); // by rank: the index in `found` of its last stop or crash, and that crash
  for (const event of events) {
    const key = `${event.agent} ${event.port}`;
    const { index, crash } = halts.get(key) ?? {};
    const before = found[index];
    const isUpdate = event.event === 'stopped' && before && (crash || !before.file);
    const isReason = isCrash(event) && before && !crash;
    if (isUpdate || isReason) {
      const merged = isReason ? combined(event, before) : crash ? combined(crash, event) : event;
      found[index] = { ...merged, time: before.time, number: before.number };
      halts.set(key, { index, crash: isReason ? event : crash });
      continue;
    }
    found.push(event);
    if (event.event === 'stopped' || isCrash(event)) halts.set(key, { index: found.length - 1, crash: isCrash(event) ? event : undefined });
    else if (['continued', 'ended', 'state'].includes(event.event)) halts.delete(key);
  }
  return found;
}

function showList(element, events) {
  const row = (event) => make('li', { class: isCrash(event) ? 'crash' : undefined }, make('time', {}, clock(event.time)), make('span', {}, event.text));
  showItems(element, events.slice(-MAX_ROWS).reverse().map((event) => [event.number, event.text, () => row(event)]));
}

/** Shows the events, newest first. */
export function showEvents() {
  const all = facts(view.events);
  const others = all.filter((event) => !concerns(event));
  showList(at('events'), all.filter(concerns));
  at('no-events').hidden = others.length < all.length;
  at('others').hidden = !others.length;
  at('others-count').textContent = String(others.length);
  showList(at('other-events'), others);
}

/** Announces new events to a screen reader. */
export function announce(events) {
  const texts = facts(events).filter(concerns).map(({ text }) => text);
  if (texts.length) at('announcement').textContent = texts.length > 3 ? `${texts.slice(0, 2).join('; ')}; and ${texts.length - 2} more` : texts.join('; ');
}
