// Processors, memory and GPUs over time, of jobs that run with --debug-monitor; from the time at which the page was opened.

import { clock, make } from './elements.js';

const NAMESPACE = 'http://www.w3.org/2000/svg';
const MAX_SAMPLES = 720;
const WIDTH = 260;
const HEIGHT = 44;
const GIB = 2 ** 30;

const samples = new Map(); // by agent: { time, cpu, memory, gpus, ranks }, all as the node announces them

/** Keeps the samples of an update. */
export function keep(nodes) {
  for (const node of nodes) {
    if (!node.usage) continue;
    const known = samples.get(node.agent) ?? [];
    if (known.at(-1)?.time === node.usage.time) continue;
    const ranks = new Map(node.targets.filter(({ cpu }) => cpu !== undefined).map((target) => [target.port, target]));
    known.push({ ...node.usage, ranks });
    samples.set(node.agent, known.slice(-MAX_SAMPLES));
  }
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Returns a plot with its current value: `points` are pairs of time and value. */
function plot(label, points, max, format) {
  const [first] = points[0];
  const [last, value] = points.at(-1);
  const x = (time) => (last === first ? WIDTH : (time - first) / (last - first) * WIDTH);
  const y = (number) => HEIGHT - 2 - Math.min(1, number / (max || 1)) * (HEIGHT - 4);
  const line = points.map(([time, number]) => `${x(time).toFixed(1)},${y(number).toFixed(1)}`).join(' ');
  const text = `${label} ${format(value)}`;
  const svg = draw('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${text}, since ${clock(first)}` },
    draw('polyline', { class: 'area', points: `0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}` }),
    draw('polyline', { class: 'line', points: line }));
  return make('figure', {}, make('figcaption', {}, make('span', {}, label), make('span', {}, format(value))), svg);
}

const percent = (total) => (value) => `${(100 * value / (total || 1)).toFixed(0)} % of ${total}`;
const bytes = (total) => (value) => `${(value / GIB).toFixed(value < GIB ? 2 : 1)}${total ? ` of ${(total / GIB).toFixed(0)}` : ''} GiB`;

/** Returns the plots of a node; none without samples. */
export function nodePlots(node) {
  const found = samples.get(node.agent) ?? [];
  const last = found.at(-1);
  if (!last) return [];
  const gpus = (last.gpus ?? []).flatMap((gpu, at) => [
    plot(`GPU ${at} ${gpu.name}`, found.map(({ time, gpus: all }) => [time, all[at]?.busy ?? 0]), 1, (value) => `${(100 * value).toFixed(0)} %`),
    plot(`GPU ${at} memory`, found.map(({ time, gpus: all }) => [time, all[at]?.memory ?? 0]), gpu.total, bytes(gpu.total)),
  ]);
  return [
    plot('processors', found.map(({ time, cpu }) => [time, cpu]), last.cores, percent(last.cores)),
    plot('memory', found.map(({ time, memory }) => [time, memory]), last.total, bytes(last.total)),
    ...gpus,
  ];
}

/** Returns whether a node has a GPU; undefined without samples. */
export function hasGpu(node) {
  return node.usage && (node.usage.gpus ?? []).length > 0;
}

/** Returns the plots of a rank; none without samples. */
export function rankPlots(node, port) {
  const found = (samples.get(node.agent) ?? []).filter(({ ranks }) => ranks.has(port));
  if (!found.length) return [];
  const values = (name) => found.map(({ time, ranks }) => [time, ranks.get(port)[name]]);
  const most = (points) => Math.max(...points.map(([, value]) => value));
  const [cpu, memory] = [values('cpu'), values('memory')];
  return [
    plot('processors', cpu, Math.max(1, most(cpu)), (value) => value.toFixed(2)),
    plot('memory', memory, most(memory) * 1.2, bytes(0)),
  ];
}
