// Files on this machine: the source of a stop, whose name comes from the job, and the relay-client program.

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

// The program of the relayDebug.command setting: a path, or a name to look up in the directories of PATH. The operating system
// would also look in the current directory, which is the folder that is open. Nothing in a folder that is not trusted is started.
export async function findProgram(command: string, folders: string[], isTrusted: boolean): Promise<string | undefined> {
  const isName = path.basename(command) === command;
  const searched = isName ? (process.env.PATH ?? '').split(path.delimiter).filter((each) => path.isAbsolute(each)) : folders.slice(0, 1);
  const directories = path.isAbsolute(command) ? [''] : searched;
  const name = process.platform === 'win32' && !/\.(exe|com)$/i.test(command) ? `${command}.exe` : command;
  for (const program of directories.map((directory) => path.resolve(directory, name))) {
    if (!isTrusted && folders.some((folder) => isInside(folder, program))) continue;
    if ((await isFile(program)) && (await fs.access(program, fs.constants.X_OK).then(() => true, () => false))) return program;
  }
  return undefined;
}

function isInside(root: string, file: string): boolean {
  const relative = path.relative(root, file);
  return relative !== '' && relative.split(path.sep)[0] !== '..' && !path.isAbsolute(relative);
}

function isFile(file: string): Promise<boolean> {
  return fs.stat(file).then((stat) => stat.isFile(), () => false);
}
