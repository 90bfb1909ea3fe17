// Addresses of this user's running relay-clients: one file for each relay-client, in a directory that only this user can enter.

import * as fs from 'node:fs/promises';
import * as os from 'node:os';
import * as path from 'node:path';
import type { Address } from './connection';

const NAME = /^control-([0-9a-f]{8})\.(sock|json)$/;

export function userDirectory(): string {
  const user = process.getuid?.() ?? 0;
  return process.env.RELAY_CLIENT_DIR || path.join(os.tmpdir(), `relay-client-${user}`);
}

// The address in each file, by the id of its relay-client; does not check whether anything is listening there.
export async function addresses(directory: string): Promise<Map<string, Address>> {
  const found = new Map<string, Address>();
  if (!(await isPrivate(directory))) return found;
  for (const name of await fs.readdir(directory)) {
    const [, id, kind] = NAME.exec(name) ?? [];
    const file = path.join(directory, name);
    const address = kind === 'sock' ? { path: file } : kind === 'json' ? await tcpAddress(file) : undefined;
    if (id && address) found.set(id, address);
  }
  return found;
}

async function isPrivate(directory: string): Promise<boolean> {
  try {
    const stat = await fs.lstat(directory);
    const user = process.getuid?.();
    return stat.isDirectory() && (user === undefined || (stat.uid === user && (stat.mode & 0o077) === 0));
  } catch {
    return false; // no relay-client has been started yet
  }
}

async function tcpAddress(file: string): Promise<Address | undefined> {
  try {
    const { port, token } = JSON.parse(await fs.readFile(file, 'utf8')) as { port?: unknown; token?: unknown };
    return typeof port === 'number' && typeof token === 'string' ? { port, token } : undefined;
  } catch {
    return undefined; // the file has just been removed
  }
}
