// Chooses the ranks that step together in the debug session of all ranks.

import * as vscode from 'vscode';
import type { Clients } from './clients';
import type { Status } from './state';

interface Choice extends vscode.QuickPickItem {
  group?: string;
}

export async function chooseGroup(clients: Clients, { client }: Status): Promise<void> {
  const { text } = await clients.request<{ text: string }>(client, 'group');
  const choices: Choice[] = [
    { label: 'all', description: 'every rank', group: 'all' },
    { label: 'here', description: 'the ranks that are stopped at the same line as the selected rank', group: 'here' },
    { label: 'ranks...', description: 'a list such as 0,3-5' },
  ];
  // VS Code focuses the editor at a stop. The stop of one more rank must not close the list.
  const chosen = await vscode.window.showQuickPick(choices, {
    placeHolder: `Which ranks should step together? Currently: ${text}`, ignoreFocusOut: true,
  });
  if (!chosen) return;
  const group = chosen.group ?? (await vscode.window.showInputBox({
    prompt: 'Ranks that step together', placeHolder: '0,3-5', ignoreFocusOut: true,
  }));
  if (!group) return;
  const found = await clients.request<{ text: string }>(client, 'group', { group });
  vscode.window.setStatusBarMessage(`Relay Debug: ${found.text}`, 5000);
}
