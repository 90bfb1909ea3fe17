'use strict';
// Stands for the module `vscode` outside VS Code: records each call of a function that shows, starts or opens something.
//
// `calls` has the calls, each with the name of the function and its arguments; `registered` has the extension's commands. A
// notification is answered with its first button.
const calls = [];
const registered = {};
const nothing = () => ({ dispose() {} });
const record = (name, result) => (...given) => {
  calls.push([name, given]);
  return typeof result === 'function' ? result(...given) : result;
};
const recorded = (part, names) => Object.fromEntries(names.map((name) => [name, record(`${part}.${name}`, Promise.resolve())]));
const notification = (name) => record(`window.${name}`, (_text, button) => Promise.resolve(button));

class EventEmitter {
  constructor() {
    this.listeners = [];
    this.event = (listener) => (this.listeners.push(listener), { dispose() {} });
  }
  fire(value) {
    this.listeners.forEach((listener) => listener(value));
  }
  dispose() {}
}

class Values {
  constructor(...values) {
    this.values = values;
  }
}

module.exports = {
  calls,
  registered,
  settings: {}, // of the user
  EventEmitter,
  Position: Values,
  Range: Values,
  ThemeIcon: Values,
  ThemeColor: Values,
  TreeItem: class {
    constructor(label, collapsibleState) {
      Object.assign(this, { label, collapsibleState });
    }
  },
  TreeItemCollapsibleState: { None: 0, Collapsed: 1, Expanded: 2 },
  StatusBarAlignment: { Left: 1 },
  ProgressLocation: { Window: 10 },
  DocumentLink: Values,
  Uri: { file: (fsPath) => ({ scheme: 'file', fsPath, with: (parts) => ({ scheme: 'file', fsPath, ...parts }) }), from: (parts) => parts },
  window: {
    ...recorded('window', ['showTextDocument', 'setStatusBarMessage', 'showInputBox', 'showQuickPick', 'showOpenDialog']),
    showErrorMessage: notification('showErrorMessage'),
    showWarningMessage: notification('showWarningMessage'),
    showInformationMessage: notification('showInformationMessage'),
    withProgress: record('window.withProgress', (_options, work) => work()),
    createStatusBarItem: record('window.createStatusBarItem', () => {
      const item = { hide() {}, dispose() {}, show: () => calls.push(['StatusBarItem.show', [item.text, item.tooltip]]) };
      return item;
    }),
    createOutputChannel: record('window.createOutputChannel', recorded('OutputChannel', ['append', 'show', 'dispose'])),
    registerTerminalLinkProvider: nothing,
    registerUriHandler: nothing,
    createTreeView: record('window.createTreeView', (_id, { treeDataProvider }) => ({
      rows: treeDataProvider,
      onDidChangeVisibility: new EventEmitter().event,
    })),
  },
  debug: {
    ...recorded('debug', ['startDebugging']),
    activeDebugConsole: recorded('debugConsole', ['appendLine']),
    registerDebugConfigurationProvider: nothing,
    registerDebugAdapterTrackerFactory: nothing,
  },
  DebugConfigurationProviderTriggerKind: {},
  commands: {
    ...recorded('commands', ['executeCommand']),
    registerCommand: (name, run) => (registered[name] = run),
  },
  extensions: {
    all: [{ packageJSON: { contributes: { debuggers: [{ type: 'debugpy' }] } } }],
    getExtension: (name) => module.exports.installed[name],
  },
  installed: {}, // the extensions that have an API, by name
  languages: { registerDocumentLinkProvider: record('languages.registerDocumentLinkProvider', nothing()) },
  workspace: {
    isTrusted: true,
    workspaceFolders: undefined,
    getConfiguration: () => ({ get: (name, otherwise) => module.exports.settings[name] ?? otherwise }),
    registerTextDocumentContentProvider: nothing,
    onDidSaveTextDocument: nothing,
  },
};
