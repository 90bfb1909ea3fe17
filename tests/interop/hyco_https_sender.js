// Sends HTTP requests as Microsoft's sample for hyco-https does, and prints one JSON line with what came back.
// Environment: RELAY_HOST, RELAY_PORT, RELAY_HC, RELAY_KEY_NAME, RELAY_KEY.
'use strict';
const crypto = require('crypto');
const https = require('hyco-https');

const { RELAY_HOST, RELAY_PORT, RELAY_HC, RELAY_KEY_NAME, RELAY_KEY } = process.env;
const token = https.createRelayToken(`https://${RELAY_HOST}/${RELAY_HC}`, RELAY_KEY_NAME, RELAY_KEY);

function send(method, path, body, headers = {}, parts = 1) {
  return new Promise((resolve, reject) => {
    const options = { hostname: RELAY_HOST, port: RELAY_PORT, path: `/${RELAY_HC}/${path}`, method };
    const request = https.request({ ...options, headers: { ServiceBusAuthorization: token, ...headers } }, (response) => {
      const received = [];
      response.on('data', (part) => received.push(part));
      response.on('error', reject);
      response.on('end', () => resolve({
        status: response.statusCode, reason: response.statusMessage, via: response.headers.via, body: Buffer.concat(received),
      }));
    });
    request.on('error', reject);
    for (let part = 0; part < parts - 1; part += 1) { request.write(body); }
    request.end(body);
  });
}

async function echoes(size, headers = {}, parts = 1) {
  const body = crypto.randomBytes(size);
  const answer = await send('POST', 'echo', body, headers, parts);
  return answer.status === 200 && answer.body.equals(Buffer.concat(Array(parts).fill(body)));
}

async function main() {
  const get = await send('GET', 'hello');
  const refused = await send('GET', 'status/418');
  return {
    get: [get.status, get.body.toString(), get.via],
    small: await echoes(1000, { 'Content-Length': 1000 }),
    limit: await echoes(65536, { 'Content-Length': 65536 }),
    large: await echoes(3000000, { 'Content-Length': 3000000 }),
    chunked: await echoes(50000, {}, 10),
    status: [refused.status, refused.reason],
    head: (await send('HEAD', 'hello')).body.length,
    many: (await Promise.all(Array.from({ length: 40 }, (_, index) => echoes(index % 4 ? 1000 : 100000)))).every(Boolean),
  };
}

main().then(
  (result) => process.stdout.write(JSON.stringify(result) + '\n'),
  (error) => { process.stdout.write(JSON.stringify({ error: String(error.message || error) }) + '\n'); process.exitCode = 1; });
