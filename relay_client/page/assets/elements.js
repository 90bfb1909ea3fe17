// Makes elements of the page. Texts from a job only ever become text nodes, never HTML.

/** Returns an element; `attributes` may contain event listeners such as `onclick`. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === 'function') element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== ''));
  return element;
}

/** Replaces the children of an element if they have changed, and keeps the keyboard focus. */
export function show(element, ...children) {
  const wanted = make('div', {}, ...children);
  if (element.innerHTML === wanted.innerHTML) return;
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  element.replaceChildren(...wanted.childNodes);
  if (focused) element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

const shownItems = new WeakMap(); // of an element: its items by key, each with its content and node

/**
 * Shows items `[key, content, build]` in their order. Only those whose content has changed are built: an update for a
 * job with 256 ranks usually changes one node.
 */
export function showItems(element, items) {
  const before = shownItems.get(element) ?? new Map();
  const after = new Map();
  for (const [key, content, build] of items) {
    const known = before.get(key);
    after.set(key, known?.content === content ? known : { content, node: build() });
  }
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  for (const [key, item] of before) if (after.get(key) !== item) item.node.remove();
  [...after.values()].forEach(({ node }, index) => {
    if (element.children[index] !== node) element.insertBefore(node, element.children[index] ?? null);
  });
  shownItems.set(element, after);
  if (focused && !element.contains(document.activeElement)) element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

/** Returns a button that copies a text and confirms this. */
export function copyButton(label, text) {
  return make('button', {
    type: 'button',
    'data-key': `copy ${label}`,
    title: text,
    onclick: async (event) => {
      const button = event.currentTarget;
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
      setTimeout(() => { button.textContent = label; }, 1500);
    },
  }, label);
}

/** Returns numbers as ranges: 0-2,5. */
export function ranges(numbers) {
  const sorted = [...new Set(numbers)].sort((one, other) => one - other);
  const parts = [];
  for (const number of sorted) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(',');
}

/** Returns a number with its noun: `1 node`, `2 nodes`. */
export const plural = (number, noun) => `${number} ${noun}${number === 1 ? '' : 's'}`;

/** Returns a duration such as `40 s` or `2 h 5 min`. */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d`;
}

/** Returns the time of day of a Unix time. */
export function clock(seconds) {
  return new Date(seconds * 1000).toTimeString().slice(0, 8);
}
