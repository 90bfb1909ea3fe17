// The terminal of VS Code, xterm.js. Each line on stdin is a JSON object: {"data": base64} is written to the terminal,
// {"resize": [columns, rows]} changes its size, and {} is answered with its lines, scrolled-out ones included.
const { createInterface } = require('node:readline');
const { Terminal } = require('@xterm/headless');

const [cols, rows] = process.argv.slice(2).map(Number);
const terminal = new Terminal({ cols, rows, allowProposedApi: true });

function lines() {
  const buffer = terminal.buffer.active;
  const found = [];
  for (let row = 0; row < buffer.length; row++) {
    const line = buffer.getLine(row);
    const text = line.translateToString(true);
    if (line.isWrapped) found[found.length - 1] += text;
    else found.push(text);
  }
  return found.filter((text) => text.trim());
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const { data, resize } = JSON.parse(line);
  terminal.write(Buffer.from(data ?? '', 'base64'), () => {
    if (resize) terminal.resize(...resize);
    else if (data === undefined) console.log(JSON.stringify(lines()));
  });
});
