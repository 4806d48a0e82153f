import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { FILE_DATABASES, SERVERS, type DatabaseName } from '../../test/support/servers.js';
import { COMMAND, RESULTS_FOLDER } from '../options.js';
import type { Size } from './conversations.js';
import type { Budget } from './percentiles.js';

const FULL: Size = { events: 10_000_000, sessions: 200_000 };

/** The small population, with as many events in a session. */
export const SMALL: Size = { events: 10_000, sessions: 200 };

const MEASURED: readonly DatabaseName[] = ['better-sqlite', ...SERVERS];

const SECONDS = 30;

/** The same folder as in scripts/test-servers.sh: servers that root starts run as another user, who cannot enter /root. */
const CACHE =
  process.env['XDG_CACHE_HOME'] ?? (process.getuid?.() === 0 ? '/var/cache' : path.join(homedir(), '.cache'));

const DATA_FOLDER = path.join(CACHE, 'adk-mikro-orm', 'growth');

export const GROWTH_USAGE = `${COMMAND} -- growth [options]
  How long calls take with ${SMALL.events.toLocaleString('en-US')} events, and with many. It takes hours.
  --databases <names>     ${MEASURED.join(', ')} (all by default), separated by commas
  --events <n>            the number of events; ${FULL.events.toLocaleString('en-US')} by default
  --sessions <n>          the number of sessions; ${FULL.sessions.toLocaleString('en-US')} by default, or one for every 50 events
  --seconds <n>           how long to measure a call; ${SECONDS} by default. Calls that take long get four times as much
  --data <folder>         where to keep the databases for the next run; by default ${DATA_FOLDER}
  --out <folder>          where to write results and the chart; by default ${path.relative('.', RESULTS_FOLDER)} for a complete run on all
                          databases, otherwise a temporary folder
Servers without a URL are started, durable, with their data in the folder. On a server with a URL, the database adk_growth_…
remains: drop it yourself. With ADK_TEST_CITUS=user the tables are distributed, and the database is dropped.`;

export interface GrowthOptions {
  databases: readonly DatabaseName[];
  size: Size;
  budget: Budget;
  data: string;
  out: string;
  isHelp: boolean;
}

export function growthOptions(args: string[]): GrowthOptions {
  const { values } = parseArgs({
    args,
    options: {
      databases: { type: 'string' },
      events: { type: 'string' },
      sessions: { type: 'string' },
      seconds: { type: 'string' },
      data: { type: 'string' },
      out: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  const events = count('events', values.events) ?? FULL.events;
  const sessions = count('sessions', values.sessions) ?? Math.ceil(events / (FULL.events / FULL.sessions));
  const seconds = count('seconds', values.seconds) ?? SECONDS;
  const known = [...FILE_DATABASES, ...SERVERS];
  const databases = values.databases?.split(',').map((name) => {
    const found = known.find((each) => each === name);
    if (found === undefined) throw new Error(`--databases does not know ${name}. There are ${known.join(', ')}.`);
    return found;
  });
  const isComplete = databases === undefined && events === FULL.events && sessions === FULL.sessions;
  return {
    databases: databases ?? MEASURED,
    size: { events, sessions },
    budget: { ms: seconds * 1_000, longMs: seconds * 4_000 },
    data: path.resolve(values.data ?? DATA_FOLDER),
    out: path.resolve(values.out ?? (isComplete ? RESULTS_FOLDER : path.join(tmpdir(), 'adk-mikro-orm-bench'))),
    isHelp: values.help,
  };
}

function count(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new Error(`--${name} needs a whole number.`);
  return value;
}
