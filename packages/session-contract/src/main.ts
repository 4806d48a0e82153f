#!/usr/bin/env node
// `npx adk-session-contract ./my-service.mjs` judges the session service of a module.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { inspect, parseArgs } from 'node:util';
import { UsageError } from './checks.js';
import { checkSessionService } from './contract.js';
import { LEVELS, type Level, type ServiceHarness } from './rule.js';

const USAGE = `Usage: adk-session-contract <file> [--level ${LEVELS.join('|')}] [--json]

Judges a session service by the rules of the contract. The file is a JavaScript module whose default export is
{ name, open }, as for checkSessionService. With --level, every rule up to that level has to hold.
The exit code is 0 when no rule is broken, 1 when one is, and 2 when the command line is wrong.
`;

async function judge(args: string[]): Promise<number> {
  const { values, positionals } = parsed(args);
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const [file, ...more] = positionals;
  if (file === undefined || more.length > 0) throw new UsageError(USAGE);
  const level = LEVELS.find((each) => each === values.level);
  if (values.level !== undefined && !level) throw new UsageError(`--level must be one of ${LEVELS.join(', ')}.`);
  const harness = await harnessOf(file);
  const verdicts = await loggingToStderr(() => checkSessionService(harness, level && { level }));
  const results = verdicts.map(({ error, ...verdict }) => ({
    ...verdict,
    // JSON shows nothing of an Error.
    ...(verdict.result === 'broken' && { error: messageOf(error) }),
  }));
  if (values.json) process.stdout.write(`${JSON.stringify(results, undefined, 2)}\n`);
  else process.stdout.write(`${tableOf(harness.name, results).join('\n')}\n`);
  return results.some(({ result }) => result === 'broken') ? 1 : 0;
}

function parsed(args: string[]) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: { level: { type: 'string' }, json: { type: 'boolean' }, help: { type: 'boolean' } },
    });
  } catch (error) {
    throw new UsageError(messageOf(error));
  }
}

interface Result {
  rule: string;
  title: string;
  level: Level;
  result: string;
  error?: string;
}

function tableOf(name: string, results: readonly Result[]): string[] {
  const line = (rule: string, level: string, result: string, title: string) =>
    `${rule.padEnd(4)}  ${level.padEnd(7)}  ${result.padEnd(8)}  ${printable(title)}`;
  return [
    line('rule', 'level', 'result', name),
    ...results.map(({ rule, level, result, title }) => line(rule, level, result, title)),
    ...results.flatMap(({ rule, title, error }) =>
      error === undefined ? [] : ['', `${rule} ${title}`, printable(error)],
    ),
  ];
}

async function harnessOf(file: string): Promise<ServiceHarness> {
  if (!existsSync(file)) throw new UsageError(`There is no file ${file}.`);
  const loaded = (await import(pathToFileURL(path.resolve(file)).href)) as { default?: unknown };
  // Node.js puts the exports of a file in CommonJS into `default`, and so does TypeScript.
  const harness = isObject(loaded.default) && 'default' in loaded.default ? loaded.default.default : loaded.default;
  if (isHarness(harness)) return harness;
  throw new UsageError(`${file} has no default export with a name and a function open, as for checkSessionService.`);
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;

const isHarness = (value: unknown): value is ServiceHarness =>
  isObject(value) &&
  'name' in value &&
  typeof value.name === 'string' &&
  'open' in value &&
  typeof value.open === 'function';

/** Sends what a service logs to stderr, so that stdout has the results alone: ADK's own services log to stdout. */
async function loggingToStderr<T>(work: () => Promise<T>): Promise<T> {
  const { stdout, stderr } = process;
  const write = stdout.write.bind(stdout);
  stdout.write = stderr.write.bind(stderr);
  try {
    return await work();
  } finally {
    stdout.write = write;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : inspect(error);
}

/** Escapes what a terminal would obey, apart from line breaks: a service's error may contain anything. */
function printable(text: string): string {
  return text.replace(/[^\P{C}\n]/gu, (character) => `\\u{${character.codePointAt(0)?.toString(16) ?? ''}}`);
}

try {
  process.exitCode = await judge(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`${printable(messageOf(error))}\n`);
  process.exitCode = error instanceof UsageError ? 2 : 1;
}
