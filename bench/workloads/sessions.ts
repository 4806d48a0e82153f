import type { Event } from '@google/adk';
import type { Contender, SessionContent } from '../contenders/contender.js';
import type { Lane } from '../measure.js';
import { Payloads } from '../payloads.js';

export const APP = 'travel';
export const USER = 'user-1';
const SEED = 20_261_121;

let sessions = 0;

export const newPayloads = (salt = 0) => new Payloads(SEED + salt);

export const oneSessionKey = (i: number): Record<string, unknown> => ({ step: i });

/** A session that is in no table yet. */
export function newContent(
  payloads: Payloads,
  eventCount: number,
  state: Record<string, unknown> = {},
): SessionContent {
  const sessionId = `session-${++sessions}`;
  const events = payloads.events(eventCount);
  // Times increase, as in a conversation.
  for (const [i, event] of events.entries()) event.timestamp -= (eventCount - i) * 1_000;
  return { key: { appName: APP, userId: USER, sessionId }, state, events };
}

/** A session in the tables of a contender, without its contents: a long history is large. */
export interface OpenSession {
  key: SessionContent['key'];
  handle: unknown;
  /** How many events it was filled with. */
  size: number;
  appended: number;
}

export async function openSessions(
  contender: Contender,
  contents: readonly SessionContent[],
): Promise<[OpenSession, ...OpenSession[]]> {
  await contender.fill(contents);
  const opened: OpenSession[] = [];
  for (const content of contents) {
    const handle = await contender.open(content);
    opened.push({ key: content.key, handle, size: content.events.length, appended: 0 });
  }
  const [first, ...others] = opened;
  if (!first) throw new Error('There is no session to open.');
  return [first, ...others];
}

export interface AppendOptions {
  /** How many events a session has at first. */
  size?: number;
  /** How many are appended to one session before another one takes over. */
  perSession?: number;
  state?: Record<string, unknown>;
  delta?: (i: number) => Record<string, unknown>;
}

/** Appends one event after the other to sessions that are made on demand. */
export function appendLane(contender: Contender, options: AppendOptions = {}): Lane {
  const { size = 0, perSession = 20, state, delta } = options;
  const payloads = newPayloads();
  return appendTo(
    contender,
    payloads,
    async (count, open) => {
      const usable = open.filter(({ appended }) => appended < perSession);
      const room = usable.reduce((sum, { appended }) => sum + perSession - appended, 0);
      const missing = Math.max(0, Math.ceil((count - room) / perSession));
      const contents = Array.from({ length: missing }, () => newContent(payloads, size, state));
      return missing === 0 ? usable : [...usable, ...(await openSessions(contender, contents))];
    },
    perSession,
    delta,
  );
}

/** Appends one event after the other to an existing session. */
export function appendToOneLane(contender: Contender, session: OpenSession): Lane {
  return appendTo(contender, newPayloads(1), async () => [session]);
}

function appendTo(
  contender: Contender,
  payloads: Payloads,
  ready: (count: number, open: readonly OpenSession[]) => Promise<OpenSession[]>,
  perSession = Infinity,
  delta = oneSessionKey,
): Lane {
  let open: OpenSession[] = [];
  let events: Event[] = [];
  return {
    async prepare(count) {
      open = await ready(count, open);
      events = payloads.events(count, delta);
    },
    async run() {
      let current = 0;
      for (const event of events) {
        let session = open[current];
        while (session && session.appended >= perSession) session = open[++current];
        if (!session) throw new Error('Too few sessions were made ready.');
        event.timestamp = Date.now();
        await contender.append(session.handle, event);
        session.appended++;
      }
    },
    async verify() {
      for (const { key, size, appended } of open) {
        if (size <= 1_000) await expectEvents(contender, key, size + appended);
      }
    },
  };
}

/** Fails if events are missing: a benchmark of something that does nothing is worthless. */
export async function expectEvents(contender: Contender, key: SessionContent['key'], expected: number): Promise<void> {
  const found = await contender.read(key);
  if (found !== expected) throw new Error(`${contender.name} has ${found} events instead of ${expected}.`);
}

/** Reads a session over and over. */
export function readLane(contender: Contender, key: SessionContent['key'], expected: number, newest?: number): Lane {
  return {
    async run(count) {
      for (let i = 0; i < count; i++) {
        const found = await contender.read(key, newest);
        if (found !== expected) throw new Error(`${contender.name} read ${found} events instead of ${expected}.`);
      }
    },
  };
}
