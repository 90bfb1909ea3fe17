// The selected rank, and the list of the ranks that have crashed or are stopped.

import { clock, copyButton, duration, make, show, showItems } from './elements.js';
import { rankPlots } from './resources.js';
import { STATES, at, describe, holderOf, isClientGone, keyOf, labelOf, labelOfKey, nameOf, now, ranks, selectedRank, view } from './view.js';

const MAX_ROWS = 100; // of stopped ranks; the map shows all

function link(target) {
  const isShared = [...ranks()].filter(([, other]) => other.rank === target.rank).length > 1;
  const which = target.rank === undefined || isShared ? `port=${target.port}` : `rank=${target.rank}`;
  return `vscode://relay-debug.relay-debug/attach?${which}&hc=${encodeURIComponent(view.state.client.hc)}`;
}

/** Returns what replaces a selected rank: a hint, or how the rank has ended. */
function nothingSelected() {
  if (view.selected === undefined) return 'Select a rank to see what it is doing and to attach to it.';
  const ends = view.events.filter((event) => event.event === 'ended' && view.selected.startsWith(`${event.agent} `));
  const last = ends.findLast((event) => event.port === undefined || keyOf(event, event) === view.selected);
  return last ? `${last.text}.` : `${labelOfKey(view.selected)} has ended.`;
}

function rowsOf(node, target, kind) {
  const { stop } = target;
  const since = kind === 'debugged' ? target.held_since : target.since;
  return [
    ['state', describe(node, target)],
    ['since', since ? `${clock(since)} (${duration(now() - since)})` : undefined],
    ['at', kind === 'crashed' ? target.place || undefined : undefined],
    ['in', stop?.function],
    ['file', stop?.file],
    ['debugger', holderOf(target)],
    ['process', [target.script, target.pid].filter((each) => each !== undefined).join(', pid ') || undefined],
    ['node', nameOf(node)],
    ['directory', node.cwd],
    ['port', target.local_ports.length ? `${target.local_ports.join(', ')} on 127.0.0.1` : `${target.port}, not opened here`],
  ].filter(([, value]) => value !== undefined);
}

export function showRank() {
  const [node, target, kind] = selectedRank();
  if (!target) {
    show(at('rank'), make('p', { class: 'quiet' }, nothingSelected()));
    return;
  }
  const command = target.rank === undefined ? `relay-client --ports ${target.port}` : `relay-client attach ${target.rank}`;
  const { stop } = target;
  show(at('rank'),
    make('h2', {}, `${labelOf(target)}${target.world ? ` of ${target.world}` : ''}`, make('span', { class: `badge ${kind}` }, STATES[kind][1])),
    make('dl', {}, ...rowsOf(node, target, kind).map(([name, value]) => make('div', {}, make('dt', {}, name),
      make('dd', { class: name === 'state' && kind === 'crashed' ? 'crash' : undefined }, String(value))))),
    make('div', { class: 'plots' }, ...rankPlots(node, target.port)),
    make('div', { class: 'actions' },
      ...(kind === 'unreachable' ? [make('p', { class: 'quiet' }, 'Give one of the jobs a different --debug-port.')] : [
        make('a', { class: 'button main', href: link(target), 'data-key': 'attach' }, 'Attach in VS Code'),
        copyButton('Copy command', command),
      ]),
      isClientGone(target) && target.rank !== undefined ? copyButton('Copy release command', `relay-client release ${target.rank}`) : '',
      target.place ? copyButton('Copy location', stop?.file && stop.line ? `${stop.file}:${stop.line}` : target.place) : '',
    ));
}

function stoppedRow(node, target, kind) {
  const key = keyOf(node, target);
  const isCrashed = kind === 'crashed';
  const who = target.holder ? `held by ${holderOf(target)}` : isCrashed ? 'waiting for a debugger' : '';
  const about = [isCrashed ? '' : target.stop?.reason, target.since ? `since ${clock(target.since)}` : ''].filter(Boolean).join(', ');
  return make('li', {},
    make('button', { type: 'button', class: kind, 'data-key': `row ${key}`, 'data-rank': key }, labelOf(target)),
    make('span', { class: 'code', title: target.stop?.file ?? '' },
      target.place || (isCrashed ? '' : 'location unknown'), target.stop?.function ? ` in ${target.stop.function}` : ''),
    isCrashed ? make('span', { class: 'crash' }, target.text) : '',
    make('span', { class: 'why' }, about, about && who ? ', ' : '', isClientGone(target) ? make('strong', {}, who) : who));
}

/** Shows the crashed ranks in the order of their crashes, then the stopped ones; first those whose client is gone. */
export function showStopped() {
  const rows = ['crashed', 'abandoned', 'stopped'].flatMap((wanted) => [...ranks()].filter(([, , kind]) => kind === wanted));
  const crashedAt = ([, target, kind]) => (kind === 'crashed' ? target.since ?? 0 : Infinity);
  rows.sort((one, other) => (crashedAt(one) < crashedAt(other) ? -1 : Number(crashedAt(one) > crashedAt(other))));
  const items = rows.slice(0, MAX_ROWS).map((row) => {
    const [node, target, kind] = row;
    const { place, text, stop, since } = target;
    return [keyOf(node, target), JSON.stringify([kind, labelOf(target), place, text, stop, since, holderOf(target)]), () => stoppedRow(...row)];
  });
  const rest = rows.length ? rows.length - items.length : undefined;
  if (rest !== 0) items.push(['rest', String(rest), () => make('li', { class: 'quiet' }, rest ? `and ${rest} more` : 'No rank is stopped.')]);
  showItems(at('stopped'), items);
}
