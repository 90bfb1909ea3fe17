// Drives a debug session as VS Code's own tests of debug adapters do, and prints what it has seen as JSON. Its log is on
// stderr. The kit sets no time limits when it connects to a port, and drops events for which nobody waits; therefore each
// wait begins before the request that leads to the event.
const { DebugClient } = require('@vscode/debugadapter-testsupport');

class LoggingClient extends DebugClient {
  async send(command, args) {
    console.error(`request ${command}`);
    const response = await super.send(command, args);
    console.error(`response ${command}`);
    return response;
  }

  emit(event, ...args) {
    console.error(`event ${event}, ${this.listenerCount(event)} waiting`);
    return super.emit(event, ...args);
  }
}

async function locals(client, frameId) {
  const { body: { scopes } } = await client.scopesRequest({ frameId });
  const { body: { variables } } = await client.variablesRequest({ variablesReference: scopes[0].variablesReference });
  return Object.fromEntries(variables.map(({ name, value }) => [name, value]));
}

async function main({ port, configuration, path, line }) {
  const client = new LoggingClient('', '', 'debugpy');
  await client.start(port);
  const { body: capabilities } = await client.initializeRequest();
  const initialized = client.waitForEvent('initialized');
  const attached = client.attachRequest(configuration);
  await initialized;
  const { body: { breakpoints } } = await client.setBreakpointsRequest({ source: { path }, breakpoints: [{ line }] });
  const [stopped] = await Promise.all([
    client.assertStoppedLocation('breakpoint', { path, line }),
    client.configurationDoneRequest(),
    attached,
  ]);
  const seen = { capable: capabilities.supportsConfigurationDoneRequest, verified: breakpoints.map((each) => each.verified) };
  seen.before = await locals(client, stopped.body.stackFrames[0].id);
  let frameId;
  for (let steps = 0; steps < 3; steps++) {
    const { body: { threads } } = await client.threadsRequest();
    const next = line + [1, -1, 0][steps];
    const [step] = await Promise.all([
      client.assertStoppedLocation(steps === 2 ? 'breakpoint' : 'step', { path, line: next }),
      client.nextRequest({ threadId: threads[0].id }),
    ]);
    frameId = step.body.stackFrames[0].id;
    seen.after = await locals(client, frameId);
  }
  const evaluated = await client.evaluateRequest({ expression: 'total * 2', frameId, context: 'repl' });
  seen.evaluated = evaluated.body.result;
  await client.disconnectRequest({ terminateDebuggee: false });
  return seen;
}

let text = '';
process.stdin.on('data', (data) => { text += data; });
process.stdin.on('end', () => main(JSON.parse(text)).then(
  (seen) => { console.log(JSON.stringify(seen)); process.exit(0); },
  (error) => { console.error(error); process.exit(1); },
));
