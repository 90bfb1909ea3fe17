// Addresses of this user's running relay-clients: one file for each relay-client, in directories that only this user can enter.

import * as fs from 'node:fs/promises';
import * as os from 'node:os';
import * as path from 'node:path';
import type { Address } from './connection';

const NAME = /^control-([0-9a-f]{8})\.(sock|json)$/;

// Where a relay-client may have put its file: relay_client/user_directory.py. While another user's directory has the name of the
// first one, a relay-client uses the second one, and stays there.
export function userDirectories(): string[] {
  if (process.env.RELAY_CLIENT_DIR) return [process.env.RELAY_CLIENT_DIR];
  const [variable, below] = process.getuid ? ['XDG_STATE_HOME', '.local/state'] : ['LOCALAPPDATA', 'AppData/Local'];
  const chosen = process.env[variable] ?? '';
  const state = path.isAbsolute(chosen) ? chosen : path.join(os.homedir(), below);
  return [path.join(os.tmpdir(), `relay-client-${process.getuid?.() ?? 0}`), path.join(state, 'relay-debug')];
}

// The address in each file, by the id of its relay-client; does not check whether anything is listening there.
export async function addresses(directories: string[]): Promise<Map<string, Address>> {
  const found = new Map<string, Address>();
  for (const directory of directories) {
    for (const name of await namesIn(directory)) {
      const [, id, kind] = NAME.exec(name) ?? [];
      const file = path.join(directory, name);
      const address = kind === 'sock' ? { path: file } : kind === 'json' ? await tcpAddress(file) : undefined;
      if (id && address) found.set(id, address);
    }
  }
  return found;
}

// The names of the files in a directory, if it is private.
async function namesIn(directory: string): Promise<string[]> {
  try {
    const stat = await fs.lstat(directory);
    const user = process.getuid?.();
    const isPrivate = stat.isDirectory() && (user === undefined || (stat.uid === user && (stat.mode & 0o077) === 0));
    return isPrivate ? await fs.readdir(directory) : [];
  } catch {
    return []; // no relay-client has been started yet
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
