// Finds the running relay-clients, keeps a connection to each of them, and stores their states.

import * as vscode from 'vscode';
import { Connection, type Address } from './connection';
import { addresses } from './directory';
import type { Attached, ClientId, Endpoint, Rank, RelayEvent, Status } from './state';

const LOOK_INTERVAL = 1000; // milliseconds; reading a directory costs nothing, and file events are unreliable in /tmp
const REFRESH_DELAY = 50; // milliseconds: several events in a row cause one request
const RETRY_DELAY = 10_000; // milliseconds until the next attempt to reach a relay-client that was killed or is suspended
const FAREWELL = 500; // milliseconds within which a relay-client that is exiting removes its file
const POLL_INTERVAL = 5000; // milliseconds between requests for round trips, whose changes cause no event

interface Client {
  connection: Connection;
  status?: Status;
  timer?: NodeJS.Timeout;
}

export class Clients implements vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  private readonly happened = new vscode.EventEmitter<RelayEvent>();
  private readonly killed = new vscode.EventEmitter<Status>();
  private readonly clients = new Map<string, Client | null>(); // null while connecting, and for a relay-client that cannot be used
  private readonly timers: NodeJS.Timeout[];
  readonly onDidChange = this.changed.event;
  readonly onEvent = this.happened.event;
  readonly onKilled = this.killed.event;

  constructor(private readonly directories: string[]) {
    const look = () => void this.look();
    const poll = () => this.clients.forEach((client) => client && void this.refresh(client));
    this.timers = [setInterval(look, LOOK_INTERVAL), setInterval(poll, POLL_INTERVAL)];
    look();
  }

  get statuses(): Status[] {
    const found = [...this.clients.values()].flatMap((client) => client?.status ?? []);
    return found.sort((one, other) => one.client.started - other.client.started);
  }

  get ranks(): Rank[] {
    return this.statuses.flatMap(({ client, nodes }) =>
      nodes.flatMap((node) => node.targets.map((target) => ({ client, node, target }))));
  }

  attach(client: ClientId, port: number): Promise<Attached> {
    return this.request<Attached>(client, 'attach', { port, wait: true });
  }

  attachAll(client: ClientId): Promise<Endpoint> {
    return this.request<Endpoint>(client, 'attach_all');
  }

  async request<T>(client: ClientId, request: string, fields: object = {}): Promise<T> {
    const found = this.clients.get(client.id);
    if (!found) throw new Error('This relay-client has exited.');
    return found.connection.request<T>(request, fields);
  }

  dispose(): void {
    this.timers.forEach(clearInterval);
    this.clients.forEach((client) => {
      if (client) client.connection.onClosed = () => {};
      client?.connection.close();
    });
    this.changed.dispose();
    this.happened.dispose();
    this.killed.dispose();
  }

  // Connects to new relay-clients; the file of a killed one remains until a relay-client removes it.
  private async look(): Promise<void> {
    const found = await addresses(this.directories);
    const open = async (id: string, address: Address) => {
      this.clients.set(id, null);
      try {
        await this.connect(id, await Connection.open(address));
      } catch {
        this.forget(id); // nothing is listening there any more, or the relay-client is not answering
      }
    };
    await Promise.all([...found].map(([id, address]) => this.clients.has(id) || open(id, address)));
  }

  private async connect(id: string, connection: Connection): Promise<void> {
    const client: Client = { connection };
    this.clients.set(id, client);
    connection.onClosed = () => {
      clearTimeout(client.timer);
      this.forget(id);
      this.changed.fire();
      if (client.status) void this.reportKilled(client.status);
    };
    connection.onEvent = (event) => {
      this.happened.fire(event);
      if (event.event !== 'log') client.timer ??= setTimeout(() => void this.refresh(client), REFRESH_DELAY);
    };
    client.status = await connection.request<Status>('subscribe');
    await connection.request('logs', { lines: 0, follow: true });
    this.changed.fire();
  }

  // A killed relay-client sends no reason and leaves its file behind.
  private async reportKilled(status: Status): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, FAREWELL));
    const address = (await addresses(this.directories)).get(status.client.id);
    if (!address) return;
    try {
      (await Connection.open(address)).close(); // the relay-client is running, and has closed only this connection
    } catch {
      this.killed.fire(status);
    }
  }

  // Delays the next attempt to connect.
  private forget(id: string): void {
    this.clients.set(id, null);
    setTimeout(() => this.clients.delete(id), RETRY_DELAY);
  }

  private async refresh(client: Client): Promise<void> {
    delete client.timer;
    try {
      client.status = await client.connection.request<Status>('status');
      this.changed.fire();
    } catch {
      // the relay-client has just exited
    }
  }
}
