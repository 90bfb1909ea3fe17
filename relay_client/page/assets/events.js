// The events: the crashes, the others that concern a person, and in a folded list the rest; also their merging for the
// timeline, their limit, and what a screen reader reads. Crashes of one wave that differ only in their ranks are one line,
// other events only if they follow each other.

import { clock, make, plural, ranges, showItems } from './elements.js';
import { at, labelOf, view } from './view.js';

const MAX_ROWS = 200; // of the first crashes, and of the newest other lines
const MAX_RANKS = 60; // characters for the numbers of the ranks in a line
const REPEATED = 60_000; // milliseconds since the last repetition in which a screen reader does not read the same again
const WAVE = 5; // seconds after its first crash in which a wave lasts, as in the notifications of the extension
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
    const isSame = event.file ? event.file === before?.file && event.line === before.line : ['exception', undefined].includes(before?.reason);
    const isReason = isCrash(event) && before && !crash && (isSame || !before.file);
    if (isUpdate || isReason) {
      const merged = isReason ? combined(event, event.file ? event : before) : crash ? combined(crash, event) : event;
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

/** Returns what is true of the rank or node of an event, without its name: `is waiting for a debugger`. */
function clauseOf(event) {
  const subject = event.port === undefined ? event.host : `${labelOf(event)} on ${event.host}`;
  const start = event.text.indexOf(subject);
  return start < 0 ? event.text : event.text.slice(start + subject.length).replace(/^( \(port \d+\)|\)?:)/, '').replace(` (pid ${event.pid})`, '').trim();
}

/** Returns the base port of the job of an event about a rank. */
const baseOf = ({ port, rank }) => (rank === undefined ? '' : port - rank);

/** Returns whether an event may be in a group with an earlier one. Nodes of a job have different agents, but so has its next start. */
const isNear = (event, earlier, isInOrder) => event.time - earlier.time <= WAVE || (isInOrder && event.agent === earlier.agent);

/** Returns the events of one job that are shown as one line each: those of a wave with the same clause, or only such that follow each other. */
function grouped(events, isInOrder) {
  const found = [];
  const byKey = new Map();
  for (const event of events) {
    const clause = clauseOf(event);
    const key = `${event.port === undefined ? 'node' : 'rank'} ${baseOf(event)} ${clause}`;
    let group = isInOrder ? found.at(-1) : byKey.get(key);
    if (group?.key !== key || !isNear(event, group.events.at(isInOrder ? -1 : 0), isInOrder)) {
      group = { key, clause, events: [] };
      found.push(group);
      byKey.set(key, group);
    }
    group.events.push(event);
  }
  return found;
}

/** Returns one sentence about all ranks or nodes of a group. */
function textOf({ clause, events }) {
  const last = events.at(-1);
  const count = new Set(events.map(({ agent, port }) => `${agent} ${port}`)).size;
  if (count === 1) return last.text;
  if (last.port === undefined) return `${plural(count, 'node')}: ${clause}`;
  const numbers = last.rank === undefined ? '' : ranges(events.map(({ rank }) => rank));
  const names = numbers && numbers.length <= MAX_RANKS ? `ranks ${numbers}` : plural(count, last.rank === undefined ? 'port' : 'rank');
  return `${names} ${clause.replace(/^is /, 'are ').replace(/^has /, 'have ').replace(/^was /, 'were ').replace(/^continues$/, 'continue')}`;
}

function showGroups(element, groups, timeOf) {
  const row = (group, text, time) => make('li', { class: isCrash(group.events[0]) ? 'crash' : undefined }, make('time', {}, time), make('span', {}, text),
    group.events.length > 1 ? make('b', { class: 'times', title: `${group.events.length} events` }, `×${group.events.length}`) : '');
  showItems(element, groups.map((group) => {
    const [text, time] = [textOf(group), clock(timeOf(group.events))];
    return [group.events[0].number, `${time} ${group.events.length} ${text}`, () => row(group, text, time)];
  }));
}

const newestFirst = (events) => grouped(events, true).slice(-MAX_ROWS).reverse();
const newestOf = (events) => events.at(-1).time;

/** Shows the crashes with the first one on top, because it is often the cause of the others, and below them the events, newest first. */
export function showEvents() {
  const all = facts(view.events);
  const others = all.filter((event) => !concerns(event));
  showGroups(at('crashes'), grouped(all.filter(isCrash)).slice(0, MAX_ROWS), (events) => events[0].time);
  showGroups(at('recent'), newestFirst(all.filter((event) => concerns(event) && !isCrash(event))), newestOf);
  at('no-events').hidden = others.length < all.length;
  at('others').hidden = !others.length;
  at('others-count').textContent = String(others.length);
  showGroups(at('other-events'), newestFirst(others), newestOf);
}

/** Returns the events without the oldest ones above a limit; crashes are kept longest. */
export function newest(events, limit) {
  let excess = events.length - limit;
  const kept = events.filter((event) => isCrash(event) || (excess -= 1) < 0);
  return kept.slice(-limit);
}

const announced = new Map(); // by text, or by clause for waiting ranks: when it last was in an update

/** Announces new events to a screen reader: crashes first, and nothing that it has just read. */
export function announce(events) {
  const found = facts(events).filter(concerns);
  const groups = [...grouped(found.filter(isCrash)), ...grouped(found.filter((event) => !isCrash(event)))];
  const texts = [];
  for (const group of groups) {
    const text = textOf(group);
    const key = group.events[0].state === 'waiting' ? group.clause : text;
    if (!(performance.now() - announced.get(key) < REPEATED)) texts.push(text);
    announced.set(key, performance.now());
  }
  if (texts.length) at('announcement').textContent = texts.length > 3 ? `${texts.slice(0, 2).join('; ')}; and ${texts.length - 2} more` : texts.join('; ');
}
