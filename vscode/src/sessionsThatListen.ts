// Starts relay-client for a session that listens for the job's connection, and stops it with the last session.

import * as vscode from 'vscode';
import type { Clients } from './clients';
import type { Launcher } from './launcher';
import { isLoopback } from './connectionRefused';
import { notify, showError, showInStatusBar } from './sinks';

const ANSWER = 'relayDebug.startsForListeningSessions'; // in the state of this workspace: true or false, or undefined until the user chooses
const SEARCH = 1500; // milliseconds within which a relay-client that a task has just started is found
const RESTART = 2000; // milliseconds within which a session that listens again starts after the end of the previous one
const [START, NEVER] = ['Start relay-client', 'Never in This Workspace'];

interface Message {
  event?: string;
  body?: { port?: unknown };
}

export class ListeningSessions implements vscode.DebugAdapterTrackerFactory, vscode.Disposable {
  private readonly sessions = new Set<string>();
  private readonly changed: vscode.Disposable;
  private readonly wanted = new Set<number>(); // ports on which sessions listen, for the relay-client that was started
  private started: number | undefined; // the process that was started for a session
  private hasAsked = false;

  constructor(private readonly clients: Clients, private readonly launcher: Launcher, private readonly state: vscode.Memento) {
    this.changed = clients.onDidChange(() => void this.openPorts());
  }

  createDebugAdapterTracker({ id, name, configuration }: vscode.DebugSession): vscode.DebugAdapterTracker {
    const { listen } = configuration as vscode.DebugConfiguration & { listen?: { host?: string } };
    this.sessions.add(id);
    return {
      // debugpy's adapter sends this once it listens. Before that, relay-client would take the port itself.
      onDidSendMessage: ({ event, body }: Message) => {
        if (event === 'debugpyWaitingForServer' && listen && isLoopback(listen.host)) void this.listens(name, Number(body?.port));
      },
      onWillStopSession: () => this.ended(id),
      onError: () => this.ended(id),
      onExit: () => this.ended(id),
    };
  }

  dispose(): void {
    this.changed.dispose();
  }

  private async listens(name: string, port: number): Promise<void> {
    try {
      if (this.launcher.pid === undefined) await this.start(name, port);
      if (this.launcher.pid === undefined || this.launcher.pid !== this.started) return;
      this.wanted.add(port);
      await this.openPorts();
    } catch (error) {
      showError(error);
    }
  }

  private async start(name: string, port: number): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, SEARCH));
    if (this.clients.statuses.length || !this.sessions.size || !(await this.mayStart(name, port))) return;
    await this.launcher.start(String(port));
    this.started = this.launcher.pid;
    if (this.started !== undefined) showInStatusBar(`Relay Debug: started relay-client for '${name}'`, 5000);
  }

  private async mayStart(name: string, port: number): Promise<boolean> {
    const answer = this.state.get<boolean>(ANSWER);
    if (answer !== undefined || this.hasAsked) return answer ?? false;
    this.hasAsked = true; // until the window is closed, if the user does not answer
    const text = `'${name}' is listening on port ${port}, and no relay-client is running that could connect a job to it.`;
    const chosen = await notify('Information', text, START!, NEVER!);
    if (chosen !== undefined) await this.state.update(ANSWER, chosen === START);
    return chosen === START && this.sessions.size > 0;
  }

  // The options in the settings may name other ports.
  private async openPorts(): Promise<void> {
    const status = this.clients.statuses.find(({ client }) => client.pid === this.started);
    if (!status) return;
    const missing = [...this.wanted].filter((port) => status.ports.every((each) => each.port !== port));
    this.wanted.clear();
    if (!missing.length) return;
    const ports = missing.map((port) => ({ port, remote_port: port }));
    await this.clients.request(status.client, 'open', { ports }).catch(showError);
  }

  private ended(id: string): void {
    this.sessions.delete(id);
    setTimeout(() => {
      if (this.sessions.size || this.started === undefined) return;
      if (this.launcher.pid === this.started) this.launcher.stop();
      this.started = undefined;
    }, RESTART);
  }
}
