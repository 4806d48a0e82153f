import { setTimeout } from 'node:timers/promises';
import { HOURS, Reading, askedAbout, newestOfGroups } from '../../../studio/src/internal.js';
import { json, printable, shortened, shownTime } from '../../../studio/src/operations/words.js';
import type { Context, Work } from '../run.js';
import type { Cell } from '../table.js';
import { appNames } from './inspect.js';

/** How long a screen stays until it is drawn again. */
const INTERVAL_MS = 1_000;

/** How many rows each list has if there is no terminal. */
const MOST = 12;

/** The lines of a screen beside the rows of its three lists. */
const OTHER_LINES = 9;

/** How many characters of arguments, hints and reasons are shown. */
const SHOWN = 80;

const ENTER = '\u001b[?1049h\u001b[?25l';
const LEAVE = '\u001b[?25h\u001b[?1049l';

/** Shows what runs, what waits and what has failed, until Ctrl-C. */
export const top: Work<[{ once?: true }]> = async (context, { once }) => {
  const { em, codec, terminal, signal } = context;
  const reading = new Reading(em, codec);
  const isTerminal = process.stdout.isTTY && !terminal.isJson;
  if (once || !isTerminal) {
    const now = await read(context, reading, MOST);
    return terminal.result(now, () => screen(context, now));
  }
  process.stdout.write(ENTER);
  try {
    while (!signal.aborted) {
      const most = Math.max(2, Math.floor(((process.stdout.rows || 40) - OTHER_LINES) / 3));
      const lines = screen(context, await read(context, reading, most));
      // From the top of the screen; the rest of each line and of the screen is erased.
      process.stdout.write(`\u001b[H${lines.map((line) => `${line}\u001b[K\n`).join('')}\u001b[J`);
      await setTimeout(INTERVAL_MS, undefined, { signal }).catch(() => undefined);
    }
  } finally {
    process.stdout.write(LEAVE);
  }
};

/** Reads at most this many rows of each list, and one more if there are others. */
async function read({ em, signal }: Context, reading: Reading, most: number) {
  while (!(await reading.lastDay.update()) && !signal.aborted) continue;
  const limit = most + 1;
  const runs = [];
  for (const lease of await reading.heldLeases({}, limit)) {
    const { call, since } = (await reading.doing(lease)) ?? {};
    const does = call ? { name: call.name, args: call.args, since } : { since };
    runs.push({ ...lease, does });
  }
  const waits = (await reading.waiting(await appNames(em), {}, { waitsFor: 'person', limit })).slice(0, limit);
  const failed = [];
  for (const failure of newestOfGroups(reading.lastDay.failures({})).slice(0, limit)) {
    const known = await reading.whyFailed(failure);
    const { session, seq, time, kind, what, times } = failure;
    if (known) failed.push({ session, seq, time, kind, what, times, why: known.why });
  }
  return { most, runs, waits, failed };
}

function screen(
  { terminal }: Pick<Context, 'terminal'>,
  { most, runs, waits, failed }: Awaited<ReturnType<typeof read>>,
): string[] {
  const list = (title: string, count: number, head: string[], rows: Cell[][]) => [
    `${terminal.bold(title)} ${count > most ? `${most} or more` : count}`,
    ...(rows.length === 0 ? [] : terminal.table([head, ...rows.slice(0, most)])),
    '',
  ];
  const called = (name: string, args: unknown) => `${printable(name)}(${shortened(json(args ?? {}), SHOWN)})`;
  const asked = (name: string, args: unknown) => {
    const about = askedAbout(name, args);
    if (about?.tool === undefined) return called(name, args);
    return `${called(about.tool, about.args)}? ${printable(shortened(about.hint ?? '', SHOWN))}`.trimEnd();
  };
  const key = ['app', 'user', 'session'];
  return [
    terminal.dim(`${shownTime(Date.now())} UTC`),
    ...list(
      'Runs',
      runs.length,
      ['does', 'since', ...key, 'held by', 'held since'],
      runs.map(({ does, ...lease }) => [
        does.name === undefined ? 'model, or between steps' : called(does.name, does.args),
        { time: does.since },
        ...[lease.appName, lease.userId, { id: lease.sessionId }, lease.holder, { time: lease.since }],
      ]),
    ),
    ...list(
      'Waits for a person',
      waits.length,
      ['call', 'since', ...key, 'id'],
      waits.map((call) => [
        ...[asked(call.name, call.args), { time: call.timestamp }],
        ...[call.appName, call.userId, { id: call.sessionId }, { id: call.id }],
      ]),
    ),
    ...list(
      `Failed in ${HOURS} hours`,
      failed.length,
      ['what', 'why', 'last', 'times', ...key],
      failed.map(({ what, why, time, times, session }) => [
        ...[what, shortened(why, SHOWN), { time }, times],
        ...[session.appName, session.userId, { id: session.sessionId }],
      ]),
    ),
  ].slice(0, -1);
}
