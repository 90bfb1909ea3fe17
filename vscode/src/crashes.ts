// One notification for a wave of crashes: when one rank crashes, the others usually lose their connections to it and crash, too.

import type * as vscode from 'vscode';
import type { Clients } from './clients';
import { attachTo } from './links';
import { notify, type Documents } from './sinks';
import type { Rank, RelayEvent } from './state';

const QUIET = 1000; // milliseconds without another crash, after which a wave is shown
const MOST = 5000; // milliseconds after the first crash, after which a wave is shown even if it continues
const [ATTACH, SHOW_ALL] = ['Attach', 'Show All'];

export class Crashes implements vscode.Disposable {
  private wave = new Map<string, RelayEvent>(); // by agent and port, because two relay-clients may see the same ranks
  private began = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly clients: Clients, private readonly documents: Documents) {}

  add(event: RelayEvent): void {
    if (event.event !== 'state' || event.state !== 'crashed' || event.port === undefined) return;
    if (!this.wave.size) this.began = Date.now();
    this.wave.set(`${event.agent}/${event.port}`, event);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.show(), Math.min(QUIET, this.began + MOST - Date.now()));
  }

  dispose(): void {
    clearTimeout(this.timer);
  }

  private async show(): Promise<void> {
    const ranks = new Map(this.clients.ranks.map((rank) => [`${rank.node.agent}/${rank.target.port}`, rank]));
    const crashes = [...this.wave].map(([key, event]) => ({ event, order: order(event, ranks.get(key)) }));
    this.wave = new Map();
    const events = crashes.sort((one, other) => one.order[0] - other.order[0] || one.order[1] - other.order[1]).map(({ event }) => event);
    const [first, ...others] = events;
    if (!first) return;
    const count = `${others.length} other rank${others.length === 1 ? '' : 's'} crashed as well`;
    const text = others.length ? `${first.text}; ${count} (${events.length} of ${ranks.size}).` : first.text;
    const chosen = await notify('Warning', text, ATTACH!, ...(others.length ? [SHOW_ALL!] : []));
    if (chosen === ATTACH) await attachTo(this.clients, { port: first.port! });
    if (chosen === SHOW_ALL) await this.documents.show('crashed ranks', events.map((event) => event.text).join('\n'));
  }
}

// The first cause comes first: by time, but crashes that another rank's usually causes come after all others.
function order(event: RelayEvent, rank: Rank | undefined): [number, number] {
  return [rank?.target.is_consequence ? 1 : 0, rank?.target.since ?? event.time];
}
