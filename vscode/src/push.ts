// Replaces the code of running ranks with the code in a file: docs/guides/push.md.

import { posix } from 'node:path';
import * as vscode from 'vscode';
import type { Clients } from './clients';
import { notify, printToDebugConsole, showError, showInStatusBar, showProgress } from './sinks';

const SHOWN = 15_000; // milliseconds for which the status bar shows the result

interface Pushed {
  text: string;
  error: string; // '' if the code was replaced in all ranks
}

export async function pushEditor(clients: Clients): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (!document || document.languageId !== 'python') throw new Error('Open a Python file first.');
  if (document.isDirty) await document.save();
  await push(clients, document);
}

export async function pushSaved(clients: Clients, document: vscode.TextDocument): Promise<void> {
  const isWanted = vscode.workspace.getConfiguration('relayDebug', document.uri).get<boolean>('pushOnSave');
  if (!isWanted || document.languageId !== 'python' || document.uri.scheme !== 'file') return;
  try {
    await push(clients, document);
  } catch (error) {
    showError(error);
  }
}

async function push(clients: Clients, document: vscode.TextDocument): Promise<void> {
  const root = vscode.workspace.getConfiguration('relayDebug', document.uri).get<string>('remoteRoot', '.');
  const remote = posix.join(root, vscode.workspace.asRelativePath(document.uri, false).replaceAll('\\', '/'));
  const fields = { file: document.uri.fsPath, remote };
  await showProgress(`Replacing the code of ${remote}`, async () => {
    for (const { client, nodes } of clients.statuses) {
      if (nodes.some(({ targets }) => targets.length)) show(await clients.request<Pushed>(client, 'push', fields));
    }
  });
}

// The first line is the summary; the other lines list what was replaced and what was not.
function show({ text, error }: Pushed): void {
  printToDebugConsole(text);
  if (!error) showInStatusBar(text.split('\n')[0] ?? text, SHOWN);
  else void notify('Warning', text);
}
