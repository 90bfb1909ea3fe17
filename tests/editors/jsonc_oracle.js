// For each text of a JSON list on stdin: the errors that VS Code's parser finds in it, its value, and its comments.
const { createScanner, parse, SyntaxKind } = require('jsonc-parser');

function comments(text) {
  const scanner = createScanner(text, false);
  const found = [];
  for (let kind = scanner.scan(); kind !== SyntaxKind.EOF; kind = scanner.scan())
    if (kind === SyntaxKind.LineCommentTrivia || kind === SyntaxKind.BlockCommentTrivia)
      found.push(text.substr(scanner.getTokenOffset(), scanner.getTokenLength()));
  return found;
}

const texts = JSON.parse(require('fs').readFileSync(0, 'utf8'));
process.stdout.write(JSON.stringify(texts.map((text) => {
  const bare = text.replace(/^\ufeff/, ''); // VS Code removes it when it reads a file
  const errors = [];
  const value = parse(bare, errors, { allowTrailingComma: true, allowEmptyContent: true });
  return { errors: errors.length, value: value === undefined ? null : value, comments: comments(bare) };
})));
