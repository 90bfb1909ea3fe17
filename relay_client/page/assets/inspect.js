// What the user requests: stacks, missing ranks, and values of variables; none of it changes or pauses a rank.

import { Refused, ask } from './connection.js';
import { copyButton, make, ranges, show } from './elements.js';
import { at, labelOf, selectedRank } from './view.js';

const note = (text) => make('p', { class: 'quiet' }, text);
const pre = (text) => make('pre', { class: 'code' }, text);

async function report(path, render) {
  const result = at('result');
  result.setAttribute('aria-busy', 'true');
  show(result, note('Waiting for the ranks.'));
  let shown;
  try {
    const found = await ask(path);
    const { error } = found;
    shown = error ? [note(`${error.sentence}${error.hint ? ` (${error.hint})` : ''}`)] : render(found);
  } catch (error) {
    shown = [note(error instanceof Refused ? error.message : 'relay-client did not answer')];
  }
  show(result, ...shown);
  result.removeAttribute('aria-busy');
  at('announcement').textContent = result.textContent.slice(0, 200);
}

function namesOf({ ranks: found, ports }) {
  return found.length ? `rank${new Set(found).size > 1 ? 's' : ''} ${ranges(found)}` : `port ${ports.join(', ')}`;
}

function groupOf(group) {
  const main = group.threads.find((thread) => thread.main) ?? group.threads[0];
  const lines = (main?.frames ?? []).map((frame) => `${frame.file}:${frame.line} ${frame.function}`).join('\n');
  return make('div', { class: 'group' },
    make('h3', {}, `${namesOf(group)}: ${group.place || group.error || 'no Python code'}`, lines ? copyButton('Copy', lines) : ''),
    pre(lines));
}

function valuesOf({ data: { groups }, hint }) {
  const all = groups.flatMap((value) => value.ranks);
  const isShared = (rank) => all.indexOf(rank) !== all.lastIndexOf(rank); // several jobs have a rank with this number
  return [...groups.map((value) => {
    const ports = value.ranks.some(isShared) ? ` (port${value.ports.length > 1 ? 's' : ''} ${ranges(value.ports)})` : '';
    const names = value.ports.length ? namesOf(value) + ports : value.text;
    const where = value.error ? ': no value' : `, evaluated in ${value.place || 'different places'}`;
    return make('div', { class: 'group' }, make('h3', {}, names + where), make('pre', { class: 'code value', tabindex: '0' }, value.error || value.text));
  }), hint ? note(`hint: ${hint}`) : ''];
}

function readValue(event) {
  event.preventDefault();
  const query = new URLSearchParams({ path: at('path').value });
  const isComparison = event.submitter?.id === 'compare-button';
  const port = at('where').value && selectedRank()[1]?.port;
  if (port && !isComparison) query.set('ports', port);
  report(`/${isComparison ? 'differences' : 'values'}?${query}`, isComparison ? ({ text }) => [pre(text)] : valuesOf);
}

/** Shows which rank is meant by the selected one. */
export function showInspect() {
  const [, target] = selectedRank();
  const [all, one] = at('where').options;
  one.textContent = target ? `in ${labelOf(target)}` : 'in the selected rank';
  one.disabled = !target;
  if (!target) all.selected = true;
}

at('stacks-button').addEventListener('click', () => report('/stacks', ({ data }) => data.groups.map(groupOf)));
at('hang-button').addEventListener('click', () => report('/hang', ({ text }) => [pre(text)]));
at('read').addEventListener('submit', readValue);
