// A hyco-https listener whose answer depends on the path. Prints one JSON line per event.
// Environment: RELAY_HOST, RELAY_PORT, RELAY_HC, RELAY_KEY_NAME, RELAY_KEY.
'use strict';
const https = require('hyco-https');

const { RELAY_HOST, RELAY_PORT, RELAY_HC, RELAY_KEY_NAME, RELAY_KEY } = process.env;
const say = (event) => process.stdout.write(JSON.stringify(event) + '\n');

function collect(request, done) {
  const parts = [];
  request.on('data', (part) => parts.push(Buffer.from(part)));
  request.on('end', () => done(Buffer.concat(parts)));
}

const answers = {
  describe: (request, response) => {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify({ method: request.method, url: request.url, headers: request.headers }));
  },
  echo: (request, response) => collect(request, (body) => { response.setHeader('X-Length', String(body.length)); response.end(body); }),
  pipe: (request, response) => request.pipe(response),
  parts: (request, response) => {
    for (let part = 0; part < 10; part += 1) { response.write(Buffer.alloc(20000, String(part))); }
    response.end();
  },
  status: (request, response) => {
    response.statusCode = Number(request.url.split('/').pop());
    response.statusMessage = 'chosen by the listener';
    response.end();
  },
};

const server = https.createRelayedServer(
  {
    server: `wss://${RELAY_HOST}:${RELAY_PORT}/$hc/${RELAY_HC}?sb-hc-action=listen`,
    token: () => https.createRelayToken(`http://${RELAY_HOST}/${RELAY_HC}`, RELAY_KEY_NAME, RELAY_KEY),
  },
  (request, response) => answers[request.url.split(/[/?]/)[2]](request, response));
server.on('listening', () => say({ event: 'listening' }));
server.on('error', (error) => { say({ event: 'error', text: String(error.message || error) }); });
server.listen();

// The test closes stdin when it is done.
process.stdin.on('end', () => process.exit(0)).resume();
