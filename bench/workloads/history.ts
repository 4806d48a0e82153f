import { CONTENDERS, type ContenderName, type Contenders } from '../contenders/contender.js';
import type { Case } from '../measure.js';
import {
  appendLane,
  appendToOneLane,
  newContent,
  newPayloads,
  openSessions,
  readLane,
  type OpenSession,
} from './sessions.js';
import { count, lanes, type Scale, type Workload } from './workload.js';

const NEWEST = 20;

/** Lengths of sessions that are rebuilt before they have grown by half. */
const SMALL_SIZES = [10, 1_000];

/** Lengths of sessions that are kept, since filling them takes long. */
const largeSizes = ({ longHistory }: Scale) => new Set([10_000, longHistory]);

/** The length to compare reading the newest events of a long history with. */
const READ_AGAINST = 1_000;

/** Each length in databases of its own, since the peer also searches the events of other sessions. */
export const history: Workload = {
  name: 'history',
  note: 'Filled by SQL. The peer gets handles with the newest 10,000 events; what it reads again itself is all of them.',

  async cases(open, scale) {
    const appends: Case[] = [];
    const reads: Case[] = [];
    for (const size of SMALL_SIZES) {
      const options = { size, perSession: size / 2 };
      appends.push(appendAt(size, await lanes(await open(), (contender) => appendLane(contender, options))));
    }
    for (const size of largeSizes(scale)) {
      const contenders = await open();
      const sessions = await oneSession(contenders, size);
      appends.push(
        appendAt(size, await lanes(contenders, (contender) => appendToOneLane(contender, sessions[contender.name]))),
      );
      if (size === scale.longHistory) reads.push(await newestOf(size, contenders, sessions));
    }
    const contenders = await open();
    reads.unshift(await newestOf(READ_AGAINST, contenders, await oneSession(contenders, READ_AGAINST)));
    return [...appends, ...reads];
  },

  comparisons: ({ longHistory }) => [
    {
      id: 'append-long-history',
      title: `Append at ${count(longHistory)} events against at 10`,
      more: `append-at-${longHistory}`,
      less: 'append-at-10',
    },
    {
      id: 'newest-of-long-history',
      title: `Newest ${NEWEST} of ${count(longHistory)} against of ${count(READ_AGAINST)}`,
      more: `newest-of-${longHistory}`,
      less: `newest-of-${READ_AGAINST}`,
    },
  ],
};

type Sessions = Record<ContenderName, OpenSession>;

/** The same session for every contender. */
async function oneSession(contenders: Contenders, size: number): Promise<Sessions> {
  const content = newContent(newPayloads(), size);
  const opened: Partial<Sessions> = {};
  for (const name of CONTENDERS) [opened[name]] = await openSessions(contenders[name], [content]);
  return opened as Sessions;
}

function appendAt(size: number, lanes: Case['lanes']): Case {
  return { id: `append-at-${size}`, title: `Append at ${count(size)} events`, unit: 'append', maxCount: 200, lanes };
}

async function newestOf(size: number, contenders: Contenders, sessions: Sessions): Promise<Case> {
  return {
    id: `newest-of-${size}`,
    title: `Read the newest ${NEWEST} of ${count(size)} events`,
    unit: 'read',
    maxCount: 200,
    lanes: await lanes(contenders, (contender) => readLane(contender, sessions[contender.name].key, NEWEST, NEWEST)),
  };
}
