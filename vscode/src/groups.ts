// Chooses the ranks that step together in the debug session of all ranks.

import type { Clients } from './clients';
import { ask, pick, showInStatusBar, type Choice } from './sinks';
import type { Status } from './state';

export async function chooseGroup(clients: Clients, { client }: Status): Promise<void> {
  const { text } = await clients.request<{ text: string }>(client, 'group');
  const choices: Choice<string>[] = [
    { label: 'all', description: 'every rank', value: 'all' },
    { label: 'here', description: 'the ranks that are stopped at the same line as the selected rank', value: 'here' },
    { label: 'ranks...', description: 'a list such as 0,3-5', value: '' },
  ];
  const chosen = await pick(choices, `Which ranks should step together? Currently: ${text}`);
  if (chosen === undefined) return;
  const group = chosen || (await ask('Ranks that step together', { placeHolder: '0,3-5' }));
  if (!group) return;
  const found = await clients.request<{ text: string }>(client, 'group', { group });
  showInStatusBar(`Relay Debug: ${found.text}`, 5000);
}
