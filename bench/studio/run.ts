import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { createStudio } from '../../packages/studio/src/index.js';
import { start, stop } from '../../test/support/run-servers.js';
import { measuredDatabases } from '../environment.js';
import { COMMAND } from '../options.js';
import { duration, number, printHeading, printTable, showProgress } from '../report.js';
import { MANY, population } from './population.js';
import { PAGES, type Page } from './pages.js';

/** The most time for a page on the server, and its maximal size. */
const TARGET = { ms: 200, bytes: 300_000 };

const REPEATS = 5;

const USAGE = `${COMMAND} -- studio [--only <databases>]
  How long each page of the studio takes with ${MANY.toLocaleString('en-US')} sessions, one of which has as many events, and how large it is: the
  median of ${REPEATS}, after one that is not counted. ✗ marks pages that take more than ${TARGET.ms} ms, or exceed ${TARGET.bytes / 1_000} kB.`;

/** Measures the pages of the studio on each database. */
export async function runStudio(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: { only: { type: 'string' }, help: { type: 'boolean', default: false } },
  });
  if (values.help) {
    process.stdout.write(`${USAGE}\n`);
    return;
  }
  if (values.only !== undefined) process.env['ADK_TEST_DATABASES'] = values.only;
  await start();
  try {
    for (const database of measuredDatabases()) {
      showProgress(`${database}: filling the tables`);
      const { orm, close } = await population(database);
      try {
        const studio = createStudio(orm.em, { onError: (error) => process.stderr.write(`${String(error)}\n`) });
        const rows: string[][] = [];
        for (const page of PAGES) {
          showProgress(`${database}: ${page.title}`);
          rows.push(await measured(studio.fetch, page));
        }
        showProgress('');
        printHeading(database);
        printTable([['', 'page', 'time', 'kB'], ...rows]);
      } finally {
        await close();
      }
    }
  } finally {
    await stop();
  }
}

async function measured(
  fetch: (request: Request) => Promise<Response>,
  { title, path, follow, isAskedFor }: Page,
): Promise<string[]> {
  const get = async (to: string) => {
    const response = await fetch(new Request(`http://localhost${to}`));
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${title}: ${response.status} ${text}`);
    return text;
  };
  const address = follow === undefined ? path : followed(await get(path), follow, title);
  const times: number[] = [];
  let bytes = 0;
  for (let i = 0; i <= REPEATS; i++) {
    const begin = performance.now();
    bytes = Buffer.byteLength(await get(address));
    if (i > 0) times.push(performance.now() - begin);
  }
  const ms = times.sort((a, b) => a - b)[Math.floor(REPEATS / 2)] ?? NaN;
  const isMet = ms <= TARGET.ms && bytes <= TARGET.bytes;
  return [isAskedFor ? '' : isMet ? '✓' : '✗', title, duration(ms * 1_000), number(bytes / 1_000)];
}

/** @returns the address behind a page's link to the next or the previous page. */
function followed(page: string, rel: string, title: string): string {
  const [, href] = new RegExp(`href="([^"]*)" rel="${rel}"`).exec(page) ?? [];
  if (href === undefined) throw new Error(`${title}: there is no such link`);
  return href.replaceAll('&amp;', '&');
}
