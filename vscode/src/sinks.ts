// The only module that gives texts, configurations and files to VS Code.
//
// What relay-client sends contains texts of jobs, agents, relays, proxies and other users. They are data, but VS Code interprets
// some of them: a configuration's name may run a command, and a notification may contain a link that does. Each kind of place
// (a sink) therefore has a rule, and the functions below apply it, whatever their arguments come from.
// tests/unit/test_extension_sources.py finds uses of VS Code's API that go around this module.

import * as vscode from 'vscode';

const NOT_PRINTABLE = /[\p{C}\p{Z}]+/gu; // control and format characters (escape sequences, bidi), lone surrogates, line ends, spaces
const NOT_IN_LINES = /(?![\n\t])[\p{C}\p{Zl}\p{Zp}]/gu;

const RULES = {
  // Each key and each text of a debug configuration, also its name: ${command:ID} runs a command, ${env:NAME} reads a variable.
  configuration: (text: string) => limit(line(text, 80).replace(/[^\w .:()-]/g, '_'), 80),
  // Notifications, and the prompts of input fields: [text](command:ID?ARGUMENTS) is a link that runs a command.
  notification: (text: string) => limit(line(text, 600).replaceAll('[', '(').replaceAll(']', ')'), 600),
  // Rows, lists, titles and the status bar: $(name) is an icon.
  label: (text: string) => limit(line(text, 200).replaceAll('$(', '$ ('), 200),
  // Tooltips: a string is shown as it is; a vscode.MarkdownString could contain links, and is never used.
  tooltip: (text: string) => limit(lines(text), 2000),
  // Documents, the Debug Console and the output: escape sequences.
  document: (text: string) => limit(lines(text), 4_000_000),
};

type Sink = keyof typeof RULES;
declare const sink: unique symbol;

// A text to which the rule of a sink has been applied.
export type Text<S extends Sink> = string & { readonly [sink]: S };

export function textFor<S extends Sink>(name: S, text: unknown): Text<S> {
  return RULES[name](typeof text === 'string' ? text : String(text ?? '')) as Text<S>;
}

function line(text: string, most: number): string {
  return text.slice(0, 4 * most).replace(NOT_PRINTABLE, ' ').trim();
}

function lines(text: string): string {
  return text.replaceAll('\r\n', '\n').replace(NOT_IN_LINES, ' ');
}

function limit(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 3).replace(/\p{Cs}$/u, '')}...`;
}

// The functions of VS Code that show a text, with the rule that each of them requires.
interface Window {
  showErrorMessage(text: Text<'notification'>, ...buttons: string[]): Thenable<string | undefined>;
  showWarningMessage(text: Text<'notification'>, ...buttons: string[]): Thenable<string | undefined>;
  showInformationMessage(text: Text<'notification'>, ...buttons: string[]): Thenable<string | undefined>;
  showInputBox(options: vscode.InputBoxOptions & { prompt: Text<'notification'> }): Thenable<string | undefined>;
  showQuickPick<T>(items: Item<T>[], options: { placeHolder: Text<'label'>; ignoreFocusOut: boolean }): Thenable<Item<T> | undefined>;
  setStatusBarMessage(text: Text<'label'>, milliseconds: number): vscode.Disposable;
  withProgress<T>(options: { location: vscode.ProgressLocation; title: Text<'label'> }, work: () => Thenable<T>): Thenable<T>;
}

interface Item<T> {
  label: Text<'label'>;
  description: Text<'label'>;
  value: T;
}

const window: Window = vscode.window;

// Notifications and questions.

export function notify(kind: 'Error' | 'Warning' | 'Information', text: string, ...buttons: string[]): Thenable<string | undefined> {
  return window[`show${kind}Message`](textFor('notification', text), ...buttons);
}

export function showError(error: unknown): void {
  void notify('Error', error instanceof Error ? error.message : String(error));
}

export function ask(prompt: string, options: Omit<vscode.InputBoxOptions, 'prompt'>): Thenable<string | undefined> {
  return window.showInputBox({ ...options, prompt: textFor('notification', prompt), ignoreFocusOut: true });
}

export interface Choice<T> {
  label: string;
  description?: string;
  value: T;
}

// The list stays when VS Code focuses the editor, as it does at each stop.
export async function pick<T>(choices: Choice<T>[], placeHolder: string): Promise<T | undefined> {
  const items = choices.map(({ label, description, value }) =>
    ({ label: textFor('label', label), description: textFor('label', description), value }));
  return (await window.showQuickPick(items, { placeHolder: textFor('label', placeHolder), ignoreFocusOut: true }))?.value;
}

// Asks for a file; undefined if the user chooses none.
export async function pickFile(title: string, folder: vscode.Uri | undefined): Promise<string | undefined> {
  const options = { title: textFor('label', title), openLabel: 'Choose', ...(folder && { defaultUri: folder }) };
  return (await vscode.window.showOpenDialog(options))?.[0]?.fsPath;
}

// The status bar.

export function showProgress<T>(title: string, work: () => Thenable<T>): Thenable<T> {
  return window.withProgress({ location: vscode.ProgressLocation.Window, title: textFor('label', title) }, work);
}

export function showInStatusBar(text: string, milliseconds: number): void {
  window.setStatusBarMessage(textFor('label', text), milliseconds);
}

export class StatusEntry implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;

  constructor(id: string, name: string, command: string) {
    this.item = vscode.window.createStatusBarItem(id, vscode.StatusBarAlignment.Left);
    this.item.name = name;
    this.item.command = command;
  }

  show(icon: 'server' | 'warning', text: string, tooltip: string): void {
    this.item.text = `$(${icon}) ${textFor('label', text)}`;
    this.item.tooltip = textFor('tooltip', tooltip);
    this.item.show();
  }

  hide(): void {
    this.item.hide();
  }

  dispose(): void {
    this.item.dispose();
  }
}

// Rows of a tree.

export interface Row {
  id: string;
  label: string;
  description: string;
  tooltip: string;
  spoken?: string; // for a screen reader, if the label is not enough
  icon: vscode.ThemeIcon;
  context: string;
  isOpen?: boolean; // at first, of a row with children
  opens?: { command: string; title: string; argument: unknown }; // when the row is clicked
}

export function treeItem({ id, label, description, tooltip, spoken, icon, context, isOpen, opens }: Row): vscode.TreeItem {
  const { Collapsed, Expanded, None } = vscode.TreeItemCollapsibleState;
  const item = new vscode.TreeItem(textFor('label', label), isOpen === undefined ? None : isOpen ? Expanded : Collapsed);
  item.id = id;
  item.description = textFor('label', description);
  item.tooltip = textFor('tooltip', tooltip);
  if (spoken) item.accessibilityInformation = { label: textFor('label', spoken) };
  item.iconPath = icon;
  item.contextValue = context;
  if (opens) item.command = { command: opens.command, title: opens.title, arguments: [opens.argument] };
  return item;
}

// Debug sessions.

export type Configuration = vscode.DebugConfiguration & { readonly [sink]: 'configuration' };

// Joins what the user has set, in which variables are resolved, and what relay-client has sent, in which there are none.
export function debugConfiguration(own: object, found: object): Configuration {
  return { ...own, ...(withoutVariables(found) as object) } as Configuration;
}

function withoutVariables(value: unknown): unknown {
  if (typeof value === 'number' || typeof value === 'boolean' || value === undefined) return value;
  if (Array.isArray(value)) return value.map(withoutVariables);
  if (typeof value !== 'object' || value === null) return textFor('configuration', value);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [textFor('configuration', key), withoutVariables(each)]));
}

export function startDebugging(folder: vscode.WorkspaceFolder | undefined, configuration: Configuration): Thenable<boolean> {
  return vscode.debug.startDebugging(folder, configuration);
}

export function printToDebugConsole(text: string): void {
  vscode.debug.activeDebugConsole.appendLine(textFor('document', text));
}

// Commands: only those named here, with arguments that relay-client does not choose.

export function startRelayClient(): Thenable<unknown> {
  return vscode.commands.executeCommand('relayDebug.start');
}

export function selectInterpreter(): Thenable<unknown> {
  return vscode.commands.executeCommand('python.setInterpreter');
}

export function openCommandSetting(): Thenable<unknown> {
  return vscode.commands.executeCommand('workbench.action.openSettings', 'relayDebug.command');
}

export function setRunning(isRunning: boolean): void {
  void vscode.commands.executeCommand('setContext', 'relayDebug.running', isRunning);
}

// Files, documents and output.

// Opens a file that `localFile` has found.
export async function openFile(file: string, line: number): Promise<void> {
  const at = new vscode.Position(Math.max(0, line - 1), 0);
  await vscode.window.showTextDocument(vscode.Uri.file(file), { selection: new vscode.Range(at, at) });
}

// A part of a text that leads to a line of a file that `localFile` has found.
export interface FileLink {
  start: number;
  length: number;
  file: string;
  line: number;
}

// Read-only texts that are shown in an editor.
export class Documents implements vscode.Disposable {
  private readonly texts = new Map<string, { text: Text<'document'>; links: FileLink[] }>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly registered: vscode.Disposable[];

  constructor(private readonly scheme: string) {
    this.registered = [
      vscode.workspace.registerTextDocumentContentProvider(scheme, {
        onDidChange: this.changed.event,
        provideTextDocumentContent: (uri) => this.texts.get(uri.path)?.text ?? '',
      }),
      vscode.languages.registerDocumentLinkProvider({ scheme }, {
        provideDocumentLinks: (document) => this.texts.get(document.uri.path)?.links.map(({ start, length, file, line }) => {
          const range = new vscode.Range(document.positionAt(start), document.positionAt(start + length));
          return new vscode.DocumentLink(range, vscode.Uri.file(file).with({ fragment: `L${line}` }));
        }),
      }),
    ];
  }

  async show(name: string, shown: string, linksIn?: (text: string) => Promise<FileLink[]>): Promise<void> {
    const uri = vscode.Uri.from({ scheme: this.scheme, path: textFor('configuration', name) });
    const text = textFor('document', shown);
    this.texts.set(uri.path, { text, links: (await linksIn?.(text)) ?? [] });
    this.changed.fire(uri);
    // In a preview tab, the text would replace the file that the user is reading.
    await vscode.window.showTextDocument(uri, { preview: false });
  }

  dispose(): void {
    this.registered.forEach((each) => each.dispose());
    this.changed.dispose();
  }
}

export class Output implements vscode.Disposable {
  private readonly channel: vscode.OutputChannel;

  constructor(name: string) {
    this.channel = vscode.window.createOutputChannel(name);
  }

  append(text: string): void {
    this.channel.append(textFor('document', text));
  }

  show(keepsFocus = false): void {
    this.channel.show(keepsFocus);
  }

  dispose(): void {
    this.channel.dispose();
  }
}
