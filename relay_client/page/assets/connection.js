// The connection to relay-client: a session key for the token in the link, and server-sent events.
// `EventSource` cannot send a header, and a cookie would be sent to every port of 127.0.0.1, so the events are fetched.

const KEY = 'relay-debug session';
const RETRY = 2000; // milliseconds

export class Refused extends Error {}

/** Exchanges the token in the link for the key of this tab, and removes the token from the address. */
export async function openSession() {
  const token = location.hash.slice(1);
  if (!token) return;
  history.replaceState(null, '', location.pathname);
  const response = await fetch('/session', { method: 'POST', body: token });
  if (response.ok) sessionStorage.setItem(KEY, (await response.json()).key);
  else if (!sessionStorage.getItem(KEY)) throw new Refused(await response.text());
}

async function get(path, signal) {
  const response = await fetch(path, { headers: { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` }, signal });
  if (response.status === 403) throw new Refused(await response.text());
  return response;
}

/** Returns the result of a request. */
export async function ask(path) {
  return (await get(path)).json();
}

/**
 * Calls `onUpdate` with each update, and `onLost` when the connection is lost and no new one can be made. Throws `Refused`
 * if relay-client refuses the connection.
 */
export async function follow(onUpdate, onLost) {
  for (;;) {
    let hasConnected = false;
    try {
      const reader = (await get('/updates')).body.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (text + value).split('\n\n');
        text = parts.pop();
        for (const part of parts) {
          onUpdate(JSON.parse(part.slice('data: '.length)), !hasConnected);
          hasConnected = true;
        }
      }
    } catch (error) {
      if (error instanceof Refused) throw error;
    }
    if (hasConnected) continue; // a relay-client that is still running accepts a new connection at once
    onLost();
    await new Promise((done) => { setTimeout(done, RETRY); });
  }
}
