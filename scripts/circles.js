/** Finds files that import each other, directly or by others, also for types alone. `npm run lint` then fails. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';

const CHECKED = /^(src|entities|migrations|packages\/[\w-]+\/src)\/.*\.ts$/;

const list = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { encoding: 'utf8' }).trim().split('\n');
const files = list.filter((file) => CHECKED.test(file) && existsSync(file));

/** @param {string} file @returns {string[]} the files that it imports. */
const importsOf = (file) =>
  ts
    .preProcessFile(readFileSync(file, 'utf8'))
    .importedFiles.map(({ fileName }) => path.join(path.dirname(file), fileName).replace(/\.js$/, '.ts'));
const imports = new Map(files.map((file) => [file, importsOf(file)]));

/** @type {Set<string>} */
const seen = new Set();

/** @param {readonly string[]} way from file to file. */
function follow(way) {
  const file = way.at(-1) ?? '';
  for (const next of imports.get(file) ?? []) {
    const start = way.indexOf(next);
    if (start !== -1) {
      console.error(`A circle of imports: ${[...way.slice(start), next].join(' -> ')}`);
      process.exitCode = 1;
    } else if (!seen.has(next)) follow([...way, next]);
  }
  seen.add(file);
}

for (const file of files) if (!seen.has(file)) follow([file]);
