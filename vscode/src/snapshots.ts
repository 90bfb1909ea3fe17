// The "Snapshots" view: what logpoints with `@snap` have captured, the newest first. Its texts come from the job.

import * as vscode from 'vscode';
import { treeItem } from './sinks';

const KEPT = 100;
const MAX_ROWS = 60; // frames of a snapshot, or variables of a frame; more than a job sends
const LINE = /^(?:(.{1,80}?) \| )?snapshot \d+ at (.*)/s; // as in the Debug Console; only a session of all ranks names the rank

export interface Captured {
  kind: 'snapshot' | 'frame' | 'value';
  id: string;
  label: string;
  description: string;
  file?: string;
  line?: number;
  rows: Captured[];
}

interface Message {
  event?: string;
  body?: { output?: unknown; data?: { snapshot?: unknown } };
}

const ICONS = { snapshot: 'device-camera', frame: 'symbol-method', value: 'symbol-variable' };

export class Snapshots implements vscode.TreeDataProvider<Captured>, vscode.DebugAdapterTrackerFactory {
  private readonly changed = new vscode.EventEmitter<undefined>();
  readonly onDidChangeTreeData = this.changed.event;
  private snapshots: Captured[] = [];
  private count = 0;

  createDebugAdapterTracker({ name }: vscode.DebugSession): vscode.DebugAdapterTracker {
    return {
      onDidSendMessage: ({ event, body }: Message) => {
        if (event === 'output' && Array.isArray(body?.data?.snapshot)) this.add(name, text(body.output), body.data.snapshot);
      },
    };
  }

  getChildren(row?: Captured): Captured[] {
    return row ? row.rows : this.snapshots;
  }

  getTreeItem(row: Captured): vscode.TreeItem {
    const { kind, id, label, description, file } = row;
    return treeItem({
      id,
      label,
      description,
      tooltip: [label, description, file].filter(Boolean).join('\n'),
      icon: new vscode.ThemeIcon(ICONS[kind]),
      context: kind,
      ...(kind !== 'value' && { isOpen: id.endsWith('/0') }), // the innermost frame
      ...(file && { opens: { command: 'relayDebug.openPlace', title: 'Go to the Line', argument: row } }),
    });
  }

  clear(): void {
    this.snapshots = [];
    this.changed.fire(undefined);
  }

  private add(session: string, output: string, captured: unknown): void {
    const id = String(++this.count);
    const rows = listsIn(captured).map(([name, file, line, values], at): Captured => ({
      kind: 'frame',
      id: `${id}/${at}`,
      label: text(name),
      description: `${text(file).split(/[\\/]/).at(-1)}:${lineOf(line)}`,
      file: text(file),
      line: lineOf(line),
      rows: listsIn(values).map(([variable, value], index): Captured => (
        { kind: 'value', id: `${id}/${at}/${index}`, label: text(variable), description: text(value), rows: [] })),
    }));
    const [, rank = session, place = output] = LINE.exec(output) ?? [];
    const [{ file, line } = {}] = rows;
    const description = place.replace(/ in [^,]*,/, ''); // the view is narrow, and the next row names the function
    const added: Captured = { kind: 'snapshot', id, label: rank, description, ...(file && { file, line: line ?? 1 }), rows };
    this.snapshots = [added, ...this.snapshots].slice(0, KEPT);
    this.changed.fire(undefined);
  }
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function lineOf(value: unknown): number {
  return Number.isInteger(value) && Number(value) > 0 ? Number(value) : 1;
}

function listsIn(value: unknown): unknown[][] {
  return Array.isArray(value) ? value.filter(Array.isArray).slice(0, MAX_ROWS) : [];
}
