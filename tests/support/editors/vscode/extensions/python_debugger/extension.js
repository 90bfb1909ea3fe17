'use strict';
// Stands for Microsoft's extension "Python Debugger" (ms-python.debugpy), which no package registry has.
//
// Of that extension (2026.7) an attach with "connect" uses two parts, and both are the same here. The configuration gets its
// defaults (`AttachConfigurationResolver.provideAttachDefaults`), and the adapter is a TCP server at the given port
// (`DebugAdapterDescriptorFactory.createDebugAdapterDescriptor`): one connect, no waiting, no retry. With "listen" it is debugpy's
// adapter as a program, run by "debugAdapterPython"; Microsoft's runs the one in its package. Children arrive as DAP
// `startDebugging` requests, which VS Code itself handles; the event `debugpyAttach` is for editors without it.
const vscode = require('vscode');

const resolver = {
  resolveDebugConfiguration(_folder, configuration) {
    return { ...configuration, clientOS: configuration.clientOS || (process.platform === 'win32' ? 'windows' : 'unix') };
  },
  resolveDebugConfigurationWithSubstitutedVariables(folder, configuration) {
    const options = new Set(configuration.debugOptions || []);
    if (configuration.subProcess === true) options.add('SubProcess');
    if (configuration.redirectOutput || configuration.redirectOutput === undefined) options.add('RedirectOutput');
    if (configuration.showReturnValue !== false) options.add('ShowReturnValue');
    const mappings = configuration.pathMappings || [];
    return {
      ...configuration,
      debugOptions: [...options],
      justMyCode: configuration.justMyCode ?? true,
      pathMappings: mappings.length > 0 ? mappings : undefined,
      showReturnValue: configuration.showReturnValue !== false,
      workspaceFolder: folder && folder.uri.fsPath,
    };
  },
};

const adapters = {
  createDebugAdapterDescriptor({ configuration }) {
    if (configuration.listen && configuration.debugAdapterPython) {
      return new vscode.DebugAdapterExecutable(configuration.debugAdapterPython, ['-m', 'debugpy.adapter']);
    }
    if (configuration.request !== 'attach' || configuration.connect === undefined) {
      throw new Error('this stand-in knows "request": "attach" with "connect" or "listen" only');
    }
    return new vscode.DebugAdapterServer(Number(configuration.connect.port), configuration.connect.host ?? '127.0.0.1');
  },
};

exports.activate = (context) => {
  context.subscriptions.push(
    vscode.debug.registerDebugConfigurationProvider('debugpy', resolver),
    vscode.debug.registerDebugAdapterDescriptorFactory('debugpy', adapters),
    vscode.debug.onDidReceiveDebugSessionCustomEvent(({ event, body, session }) => {
      if (event !== 'debugpyAttach' || session.configuration.type !== 'debugpy' || !body) return;
      vscode.debug.startDebugging(session.workspaceFolder, body, { parentSession: session, lifecycleManagedByParent: true });
    }));
};
