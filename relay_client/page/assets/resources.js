// Plots of CPU, memory and GPU usage over time for jobs that run with --debug-monitor, starting when the tab was opened.

import { clock, make } from './elements.js';

const NAMESPACE = 'http://www.w3.org/2000/svg';
const MAX_SAMPLES = 720;
const WIDTH = 260;
const HEIGHT = 44;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

const KEY = 'relay-debug samples';
const MAX_STORED = 60; // samples of a node that a reload keeps; a browser stores about 5 MB

const samples = restored(); // by agent: { time, cpu, memory, gpus, ranks }, all as the node announces them

addEventListener('pagehide', () => {
  const stored = [...samples].map(([agent, known]) => [agent, known.slice(-MAX_STORED).map((sample) => ({ ...sample, ranks: [...sample.ranks] }))]);
  try {
    sessionStorage.setItem(KEY, JSON.stringify(stored));
  } catch { // more than this browser stores: the plots start again
    sessionStorage.removeItem(KEY);
  }
});

/** Returns the samples that this tab had before it was loaded again. */
function restored() {
  const stored = JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
  return new Map(stored.map(([agent, known]) => [agent, known.map((sample) => ({ ...sample, ranks: new Map(sample.ranks) }))]));
}

/** Keeps the samples in an update. */
export function keep(nodes) {
  for (const node of nodes) {
    if (!node.usage) continue;
    const known = samples.get(node.agent) ?? [];
    if (known.at(-1)?.time === node.usage.time) continue;
    const { processes, ...sample } = node.usage;
    known.push({ ...sample, ranks: new Map(processes.map(({ port, cpu, memory, gpus }) => [port, { cpu, memory, gpus }])) });
    samples.set(node.agent, known.slice(-MAX_SAMPLES));
  }
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * Returns a plot with its current value, or the range of the current values of several lines. Each line consists of pairs
 * of time and value, and `limit` is `max` as text.
 */
function plot(label, lines, max, format, limit = format(max)) {
  const [first] = lines[0][0];
  const [last] = lines[0].at(-1);
  const values = lines.map((points) => points.at(-1)[1]);
  const x = (time) => (last === first ? WIDTH : (time - first) / (last - first) * WIDTH);
  const y = (number) => HEIGHT - 2 - Math.min(1, number / (max || 1)) * (HEIGHT - 4);
  const pathOf = (points) => {
    const drawn = points.map(([time, number]) => [x(time), y(number)]);
    if (drawn.length === 1) drawn.unshift([0, drawn[0][1]]); // a single sample is a horizontal line
    return drawn.map((point) => point.map((coordinate) => coordinate.toFixed(1)).join()).join(' ');
  };
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const text = least === most ? format(most) : `${format(least).match(/^[\d.]+/)[0]} to ${format(most)}`;
  const svg = draw('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${label} ${text}, since ${clock(first)}` },
    ...lines.map(pathOf).flatMap((path) => [
      draw('polyline', { class: 'area', points: `0,${HEIGHT} ${path} ${WIDTH},${HEIGHT}` }),
      draw('polyline', { class: 'line', points: path })]));
  return make('figure', {}, make('figcaption', {}, make('span', { title: label }, label), make('span', {}, text)), make('div', { class: 'axes' },
    make('div', { class: 'values' }, make('span', {}, String(limit)), make('span', {}, '0')), svg,
    make('div', { class: 'times' }, make('span', {}, clock(first)), make('span', {}, clock(last)))));
}

const percent = (total) => (value) => `${(100 * value / (total || 1)).toFixed(0)} % of ${total}`;
const bytesOf = (total) => (value) => `${(value / GIB).toFixed(value < GIB ? 2 : 1)} of ${(total / GIB).toFixed(0)} GiB`;
const bytes = (value) => (value < GIB ? `${(value / MIB).toFixed(0)} MiB` : `${(value / GIB).toFixed(value < 10 * GIB ? 1 : 0)} GiB`);

/** Returns a plot for the load and one for the memory of all GPUs of a node, with a line for each GPU. */
function gpuPlots(found, gpus) {
  if (!gpus.length) return [];
  const name = gpus.length > 1 ? `GPUs 0-${gpus.length - 1}` : 'GPU 0';
  const total = Math.max(...gpus.map((gpu) => gpu.total));
  const lines = (field) => gpus.map((_, at) => found.map(({ time, gpus: all }) => [time, all?.[at]?.[field] ?? 0]));
  return [
    plot(`${name} ${gpus[0].name}`, lines('busy'), 1, (value) => `${(100 * value).toFixed(0)} %`),
    plot(`${name} memory`, lines('memory'), total, bytesOf(total), bytes(total)),
  ];
}

/** Returns the plots of a node; none without samples. */
export function nodePlots(node) {
  const found = samples.get(node.agent) ?? [];
  const last = found.at(-1);
  if (!last) return [];
  return [
    plot('processors', [found.map(({ time, cpu }) => [time, cpu])], last.cores, percent(last.cores), last.cores),
    plot('memory', [found.map(({ time, memory }) => [time, memory])], last.total, bytesOf(last.total), bytes(last.total)),
    ...gpuPlots(found, last.gpus ?? []),
  ];
}

/** Returns whether a node has a GPU; undefined without samples. */
export function hasGpu(node) {
  return node.usage && (node.usage.gpus ?? []).length > 0;
}

/** Returns a plot for the memory of the GPUs that a rank uses, with a line for each GPU; none if they are unknown. */
function sharePlots(found, port) {
  const shares = (sample) => sample.ranks.get(port).gpus ?? [];
  const last = shares(found.at(-1));
  if (!last.length) return [];
  const numbers = last.map(({ number }) => number);
  const total = Math.max(...numbers.map((number) => found.at(-1).gpus?.[number]?.total ?? 0));
  const name = `${numbers.length > 1 ? 'GPUs' : 'GPU'} ${numbers.join(', ')} ${last.some((share) => share.is_reserved) ? 'memory of torch' : 'memory'}`;
  const lineOf = (number) => found.map((sample) => [sample.time, shares(sample).find((share) => share.number === number)?.memory ?? 0]);
  return [plot(name, numbers.map(lineOf), total, bytesOf(total), bytes(total))];
}

/** Returns the plots of a rank; none without samples. */
export function rankPlots(node, port) {
  const found = (samples.get(node.agent) ?? []).filter(({ ranks }) => ranks.has(port));
  if (!found.length) return [];
  const values = (name) => found.map(({ time, ranks }) => [time, ranks.get(port)[name]]);
  const most = (points) => Math.max(...points.map(([, value]) => value));
  const [cpu, memory] = [values('cpu'), values('memory')];
  return [
    plot('processors', [cpu], Math.max(1, most(cpu)), (value) => value.toFixed(2)),
    plot('memory', [memory], most(memory) * 1.2, bytes),
    ...sharePlots(found, port),
  ];
}
