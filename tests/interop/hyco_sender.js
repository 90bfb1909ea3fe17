// A hyco-ws sender: sends a text and 300,000 binary bytes, expects both echoed, closes with 1000 "bye".
// Environment: RELAY_HOST, RELAY_PORT, RELAY_HC, RELAY_KEY_NAME, RELAY_KEY. Prints one JSON line; exit 0 on success.
'use strict';
const crypto = require('crypto');
const WebSocket = require('hyco-ws');

const { RELAY_HOST, RELAY_PORT, RELAY_HC, RELAY_KEY_NAME, RELAY_KEY } = process.env;
const finish = (status, result) => { process.stdout.write(JSON.stringify(result) + '\n'); process.exitCode = status; };

const text = 'grüße';
const bytes = crypto.randomBytes(300000);
const echoed = { text: false, binary: false };
const token = WebSocket.createRelayToken(`http://${RELAY_HOST}/${RELAY_HC}`, RELAY_KEY_NAME, RELAY_KEY);
const socket = WebSocket.relayedConnect(
  `wss://${RELAY_HOST}:${RELAY_PORT}/$hc/${RELAY_HC}?sb-hc-action=connect&sb-hc-id=${crypto.randomUUID()}`,
  token,
  () => { socket.send(text); socket.send(bytes, { binary: true }); });

socket.on('message', (data, flags) => {
  if (flags.binary) { echoed.binary = bytes.equals(data); } else { echoed.text = data === text; }
  if (echoed.binary && echoed.text) { socket.close(1000, 'bye'); }
});
socket.on('close', (code, reason) => finish(echoed.text && echoed.binary ? 0 : 1, { ...echoed, code, reason }));
socket.on('unexpected-response', (request, response) => {
  finish(2, { status: response.statusCode, reason: response.statusMessage });
  request.abort();
});
socket.on('error', (error) => { if (!process.exitCode) { finish(3, { error: String(error.message || error) }); } });
