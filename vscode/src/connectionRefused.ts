// Explains why a session could not connect: VS Code itself shows only "connect ECONNREFUSED 127.0.0.1:5678".

import * as vscode from 'vscode';
import type { Clients } from './clients';
import { notify, showError, startRelayClient } from './sinks';

const START = 'Start relay-client';

export function isLoopback(host: string | undefined): boolean {
  return host === undefined || ['127.0.0.1', 'localhost', '::1'].includes(host);
}

// A session whose first message is not "initialize" has not connected; VS Code is only ending it. The port itself is never probed,
// because a debugger serves one connection, and would mistake the probe for its editor.
export class RefusedSessions implements vscode.DebugAdapterTrackerFactory {
  constructor(private readonly clients: Clients) {}

  createDebugAdapterTracker({ configuration }: vscode.DebugSession): vscode.DebugAdapterTracker | undefined {
    const port = localPort(configuration);
    if (port === undefined) return undefined;
    let isFirst = true;
    return {
      onWillReceiveMessage: ({ command }: { command?: string }) => {
        if (isFirst && command !== 'initialize') void this.explain(port);
        isFirst = false;
      },
    };
  }

  private async explain(port: number): Promise<void> {
    const { statuses } = this.clients;
    if (!statuses.length) {
      const text = `Nothing is listening on port ${port}, and relay-client is not running.`;
      if ((await notify('Error', text, START)) === START) await startRelayClient();
      return;
    }
    const open = statuses.flatMap(({ ports }) => ports.filter((each) => !each.is_editor && !each.is_forward).map((each) => each.port));
    const list = open.sort((a, b) => a - b).join(', ');
    const names = open.length ? `has opened port${open.length > 1 ? 's' : ''} ${list}` : 'has not opened a port for an editor';
    showError(`Nothing is listening on port ${port}. The running relay-client ${names}.`);
  }
}

// The port on this machine that a session connects to.
function localPort(configuration: vscode.DebugConfiguration): number | undefined {
  const { request, connect } = configuration as vscode.DebugConfiguration & { connect?: { host?: string; port?: unknown } };
  if (request !== 'attach' || !connect || !isLoopback(connect.host)) return undefined;
  return Number(connect.port) || undefined;
}
