// A hyco-ws listener that echoes every message. Prints one JSON line per event.
// Environment: RELAY_HOST, RELAY_PORT, RELAY_HC, RELAY_KEY_NAME, RELAY_KEY.
'use strict';
const WebSocket = require('hyco-ws');

const { RELAY_HOST, RELAY_PORT, RELAY_HC, RELAY_KEY_NAME, RELAY_KEY } = process.env;
const say = (event) => process.stdout.write(JSON.stringify(event) + '\n');

const server = WebSocket.createRelayedServer(
  {
    server: `wss://${RELAY_HOST}:${RELAY_PORT}/$hc/${RELAY_HC}?sb-hc-action=listen`,
    token: WebSocket.createRelayToken(`http://${RELAY_HOST}/${RELAY_HC}`, RELAY_KEY_NAME, RELAY_KEY),
  },
  (socket) => {
    socket.on('open', () => say({ event: 'accepted', protocol: socket.protocol }));
    socket.on('message', (data, flags) => socket.send(data, { binary: Boolean(flags.binary) }));
    socket.on('close', (code, reason) => say({ event: 'closed', code, reason }));
    socket.on('error', () => {});
  });
server.on('listening', () => say({ event: 'listening' }));
server.on('error', (error) => { say({ event: 'error', text: String(error.message || error) }); process.exit(1); });

// The test closes stdin when it is done.
process.stdin.on('end', () => process.exit(0)).resume();
