// Files on this machine: sources, whose names come from the job, connection files, and the relay-client program.

import * as fs from 'node:fs/promises';
import * as path from 'node:path';

export interface Folder {
  root: string; // on this machine
  remoteRoot: string; // the same directory on the node: absolute, or relative to the job's working directory
}

// The file of these folders that a job names by its path on this machine or on the node. Other paths are not even looked up:
// on Windows, looking up \\server\share sends the user's credentials to that server.
export async function localFile(name: string, cwd: string, folders: Folder[]): Promise<string | undefined> {
  if (!path.isAbsolute(name)) return undefined;
  for (const { root, remoteRoot } of folders) {
    const real = await fs.realpath(root).catch(() => root);
    const remote = path.posix.join(path.posix.isAbsolute(remoteRoot) ? '' : cwd, remoteRoot);
    const isMapped = path.posix.isAbsolute(remote) && path.posix.isAbsolute(name);
    const relative = [path.relative(root, name), path.relative(real, name), ...(isMapped ? [path.posix.relative(remote, name)] : [])];
    for (const file of relative.map((each) => path.resolve(root, each))) {
      if (isInside(root, file) && (await isFile(file))) return file;
    }
  }
  return undefined;
}

const MAX_FILES = 1000; // that a text may name; the others are not looked up
const FRAME = /^ {4}(.{1,1000}):(\d{1,7}) /gm; // a frame of `relay-client stacks`: "    /job/train.py:41 train"

// The frames in the text of stacks whose files are in these folders; `cwds` are the working directories of the nodes.
export async function frameLinks(text: string, cwds: string[], folders: Folder[]) {
  const known = new Map<string, string | undefined>();
  const links: { start: number; length: number; file: string; line: number }[] = [];
  for (const { 1: name = '', 2: line = '', index } of text.matchAll(FRAME)) {
    if (!known.has(name) && known.size < MAX_FILES) {
      const found = await Promise.all(cwds.map((cwd) => localFile(name, cwd, folders)));
      known.set(name, found.find((each) => each));
    }
    const file = known.get(name);
    if (file) links.push({ start: index + 4, length: name.length + 1 + line.length, file, line: Number(line) });
  }
  return links;
}

// The program of the relayDebug.command setting: a path, or a name to look up in the directories of the selected interpreter's
// environment and in those of PATH. The operating system would also look in the current directory, which is the folder that is
// open. Nothing in a folder that is not trusted is started.
export async function findProgram(
  command: string, folders: string[], isTrusted: boolean, environment: string[] = [],
): Promise<string | undefined> {
  const isName = path.basename(command) === command;
  const listed = [...environment, ...(process.env.PATH ?? '').split(path.delimiter)];
  const searched = isName ? listed.filter((each) => path.isAbsolute(each)) : folders.slice(0, 1);
  const directories = path.isAbsolute(command) ? [''] : searched;
  const name = process.platform === 'win32' && !/\.(exe|com)$/i.test(command) ? `${command}.exe` : command;
  for (const program of directories.map((directory) => path.resolve(directory, name))) {
    if (!isTrusted && folders.some((folder) => isInside(folder, program))) continue;
    if ((await isFile(program)) && (await fs.access(program, fs.constants.X_OK).then(() => true, () => false))) return program;
  }
  return undefined;
}

// The options that name a connection file of the user's: the files of `relay-server init` lie beside their CA.
export async function connectionOptions(file: string, folder: string | undefined): Promise<string[]> {
  const [directory, name] = [path.dirname(file), path.basename(file)];
  if (name === '.azrelay.json') {
    if (directory !== folder) throw new Error('relay-client reads .azrelay.json only in the folder that is open. Open its folder.');
    return [];
  }
  if (/\.(toml|agent\.connection)$/.test(name)) {
    throw new Error(`${name} is not for relay-client. Choose the file NAME.client.connection that 'relay-server init' has written.`);
  }
  const authorities = [path.join(directory, 'tls', 'ca.pem'), path.join(directory, 'ca.pem')];
  const found = await Promise.all(authorities.map(isFile));
  const ca = authorities.find((_, at) => found[at]);
  return ['--connection-string-file', file, ...(ca ? ['--ca-file', ca] : [])];
}

function isInside(root: string, file: string): boolean {
  const relative = path.relative(root, file);
  return relative !== '' && relative.split(path.sep)[0] !== '..' && !path.isAbsolute(relative);
}

function isFile(file: string): Promise<boolean> {
  return fs.stat(file).then((stat) => stat.isFile(), () => false);
}
