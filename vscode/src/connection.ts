// One connection to the control socket of a running relay-client: docs/reference/control-socket.md.

import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import * as net from 'node:net';
import type { ClientId, RelayEvent } from './state';

const HELLO_TIMEOUT = 5000; // milliseconds; a suspended relay-client accepts connections and does not answer

export type Address = { path: string } | { port: number; token: string };

// The error in a relay-client's response to a failed request.
export class RequestFailed extends Error {
  constructor(sentence: string, hint: string) {
    super(hint ? `${sentence}. ${hint}` : sentence);
  }
}

interface Waiting {
  resolve(result: unknown): void;
  reject(error: Error): void;
}

export class Connection {
  onEvent: (event: RelayEvent) => void = () => {};
  onClosed: () => void = () => {};
  private readonly waiting = new Map<number, Waiting>();
  private lastId = 0;
  private rest = '';

  private constructor(private readonly socket: net.Socket, readonly client: ClientId) {}

  // Rejects if nothing is listening there, or if the listening program does not know the token.
  static async open(address: Address): Promise<Connection> {
    const socket = 'path' in address ? net.connect(address.path) : net.connect(address.port, '127.0.0.1');
    socket.setEncoding('utf8');
    try {
      const lines = new Lines(socket);
      const hello = 'path' in address ? await lines.next() : await authenticate(lines, socket, address.token);
      const connection = new Connection(socket, hello.hello as ClientId);
      lines.release((text) => connection.receive(text));
      socket.on('close', () => connection.closed());
      return connection;
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  request<T>(request: string, fields: object = {}): Promise<T> {
    const id = ++this.lastId;
    return new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (result: unknown) => void, reject });
      this.socket.write(`${JSON.stringify({ id, request, ...fields })}\n`);
    });
  }

  // Disconnects, which also cancels the requests in progress.
  close(): void {
    this.socket.destroy();
  }

  private receive(text: string): void {
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop() ?? '';
    for (const line of lines) this.take(JSON.parse(line) as Record<string, unknown>);
  }

  private take(message: Record<string, unknown>): void {
    if (typeof message.event === 'string') return this.onEvent(message as unknown as RelayEvent);
    const waiting = this.waiting.get(message.id as number);
    this.waiting.delete(message.id as number);
    const error = message.error as { sentence: string; hint: string } | undefined;
    if (error) waiting?.reject(new RequestFailed(error.sentence, error.hint));
    else waiting?.resolve(message.result);
  }

  private closed(): void {
    for (const each of this.waiting.values()) each.reject(new RequestFailed('relay-client has exited', ''));
    this.waiting.clear();
    this.onClosed();
  }
}

// Both sides prove that they know the token, without sending it.
async function authenticate(lines: Lines, socket: net.Socket, token: string): Promise<Record<string, unknown>> {
  const { challenge } = await lines.next();
  const nonce = randomBytes(16).toString('hex');
  const proof = (side: string) => createHmac('sha256', token).update(`${side}:${challenge}:${nonce}`).digest();
  socket.write(`${JSON.stringify({ nonce, proof: proof('client').toString('hex') })}\n`);
  const hello = await lines.next();
  const found = Buffer.from(String(hello.proof), 'hex');
  const expected = proof('server');
  if (found.length !== expected.length || !timingSafeEqual(found, expected)) {
    throw new Error('another program is listening on the port of this relay-client');
  }
  return hello;
}

// The first lines of a connection, one by one.
class Lines {
  private text = '';
  private wake: () => void = () => {};
  private error: Error | undefined;
  private readonly onData = (text: string) => {
    this.text += text;
    this.wake();
  };
  private readonly onError = (error?: Error) => {
    this.error ??= error ?? new Error('the connection was closed');
    this.wake();
  };

  constructor(private readonly socket: net.Socket) {
    socket.on('data', this.onData);
    socket.on('error', this.onError);
    socket.on('close', () => this.onError());
  }

  async next(): Promise<Record<string, unknown>> {
    const timer = setTimeout(() => this.onError(new Error('no answer')), HELLO_TIMEOUT);
    try {
      while (!this.text.includes('\n')) {
        if (this.error) throw this.error;
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      clearTimeout(timer);
    }
    const end = this.text.indexOf('\n');
    const line = this.text.slice(0, end);
    this.text = this.text.slice(end + 1);
    return JSON.parse(line) as Record<string, unknown>;
  }

  // Passes the received data and all further data to another reader.
  release(receive: (text: string) => void): void {
    this.socket.off('data', this.onData);
    this.socket.on('data', receive);
    receive(this.text);
  }
}
