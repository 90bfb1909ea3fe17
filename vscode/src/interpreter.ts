// The Python environment that the user has selected, in which relay-client may be installed.

import * as path from 'node:path';
import * as vscode from 'vscode';

const PYTHON = 'ms-python.python';

// The part of the Python extension's public API that is used here.
interface PythonApi {
  environments?: { getActiveEnvironmentPath(folder?: vscode.Uri): { path: string } };
}

export function canSelectInterpreter(): boolean {
  return vscode.extensions.getExtension(PYTHON) !== undefined;
}

// Where the programs of the selected environment may be. A folder that is not trusted selects none.
export async function programDirectories(): Promise<string[]> {
  if (!vscode.workspace.isTrusted) return [];
  const [folder] = vscode.workspace.workspaceFolders ?? [];
  const setting = vscode.workspace.getConfiguration('python', folder).get<string>('defaultInterpreterPath', '');
  const root = folder?.uri.fsPath ?? '';
  const found = [await selected(folder?.uri), setting.replace(/^\$\{workspaceFolder\}/, root)];
  const paths = found.filter((each) => path.dirname(each) !== '.').map((each) => path.resolve(root, each));
  return paths.flatMap(directoriesOf).filter((each) => path.isAbsolute(each));
}

async function selected(folder: vscode.Uri | undefined): Promise<string> {
  try {
    const api = await vscode.extensions.getExtension<PythonApi>(PYTHON)?.activate();
    return api?.environments?.getActiveEnvironmentPath(folder).path ?? '';
  } catch {
    return ''; // the Python extension itself reports why it cannot start
  }
}

// The path of an environment is its interpreter, or its directory if it has no interpreter.
function directoriesOf(python: string): string[] {
  const beside = path.dirname(python);
  return [beside, path.join(beside, 'Scripts'), path.join(python, 'bin'), path.join(python, 'Scripts')];
}
