import { inspect } from 'node:util';
import type { Level, ServiceHarness } from '../../testing/index.js';
import { isObject } from '../../model/objects.js';
import { printableLines } from '../../operations/words.js';
import { defaultExportOf } from '../default-export.js';
import type { WorkAlone } from '../run.js';
import { UsageError } from '../usage-error.js';

export const checkService: WorkAlone<[file: string, options: { level?: Level }]> = async (
  terminal,
  file,
  { level },
) => {
  const harness = await defaultExportOf(file);
  if (!isHarness(harness))
    throw new UsageError(`${file} has no default export with a name and a function open, as for checkSessionService.`);
  // The other commands need nothing of it.
  const { checkSessionService } = await import('../../testing/index.js');
  const verdicts = await loggingToStderr(() => checkSessionService(harness, level && { level }));
  const results = verdicts.map(({ result, error, ...rule }) => ({
    ...{ ...rule, result },
    // JSON shows nothing of an Error.
    error: result === 'broken' ? messageOf(error) : undefined,
  }));
  await terminal.result(results, () => [
    ...terminal.table([
      ['rule', 'level', 'result', harness.name],
      ...results.map(({ rule, level, result, title }) => [rule, level, result, title]),
    ]),
    ...results.flatMap(({ rule, title, error }) =>
      error === undefined ? [] : ['', terminal.red(`${rule} ${title}`), ...printableLines(error)],
    ),
  ]);
  return results.some(({ result }) => result === 'broken') ? 'failed' : undefined;
};

/** What a service logs goes to stderr, since results alone are on stdout: ADK's own logs to stdout. */
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

const messageOf = (error: unknown) => (error instanceof Error ? error.message : inspect(error));

const isHarness = (value: unknown): value is ServiceHarness =>
  isObject(value) &&
  'name' in value &&
  typeof value.name === 'string' &&
  'open' in value &&
  typeof value.open === 'function';
