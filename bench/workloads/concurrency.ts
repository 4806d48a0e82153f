import type { Event } from '@google/adk';
import type { Contender, SessionContent } from '../contenders/contender.js';
import type { Lane } from '../measure.js';
import { expectEvents, newContent, newPayloads, oneSessionKey } from './sessions.js';
import { lanes, type Workload } from './workload.js';

const SESSIONS = 16;
/** More than the connections of MikroORM's pool by default. */
const MANY_SESSIONS = 64;
const WRITERS = 8;

/** Each in databases of its own, since the peer also searches the events of other sessions. */
export const concurrency: Workload = {
  name: 'concurrency',
  note: 'Times are for an event, all writers together. A handle is behind where another one appended last.',
  async cases(open) {
    return [
      {
        id: 'concurrent-sessions',
        title: `Append to ${SESSIONS} sessions at once`,
        unit: 'event',
        maxCount: 480,
        minCount: SESSIONS,
        minPeerCount: SESSIONS,
        lanes: await lanes(await open(), (contender) => parallelLane(contender, SESSIONS, SESSIONS)),
      },
      {
        id: 'concurrent-many-sessions',
        title: `Append to ${MANY_SESSIONS} sessions at once`,
        unit: 'event',
        maxCount: 1_920,
        minCount: MANY_SESSIONS,
        minPeerCount: MANY_SESSIONS,
        lanes: await lanes(await open(), (contender) => parallelLane(contender, MANY_SESSIONS, MANY_SESSIONS)),
      },
      {
        id: 'concurrent-writers',
        title: `Append to one session by ${WRITERS} writers at once`,
        unit: 'event',
        maxCount: 240,
        minCount: WRITERS * 2,
        minPeerCount: WRITERS * 2,
        lanes: await lanes(await open(), (contender) => parallelLane(contender, 1, WRITERS)),
      },
      {
        id: 'append-stale',
        title: 'Append with a handle that is behind every second time',
        unit: 'append',
        maxCount: 200,
        minCount: 4,
        minPeerCount: 4,
        lanes: await lanes(await open(), staleLane),
      },
    ];
  },
};

/** Every writer has a handle of its own and appends one event after the other. */
export function parallelLane(contender: Contender, sessionCount: number, writerCount: number): Lane {
  const payloads = newPayloads();
  let contents: SessionContent[] = [];
  let handles: unknown[] = [];
  let events: Event[] = [];
  return {
    async prepare(count) {
      contents = Array.from({ length: sessionCount }, () => newContent(payloads, 0));
      await contender.fill(contents);
      handles = [];
      for (let writer = 0; writer < writerCount; writer++) {
        handles.push(await contender.open(contents[writer % sessionCount]!));
      }
      // Each writer has its own key: with one key only the last writer would show.
      events = payloads.events(count, (i) => ({ [`step_${i % writerCount}`]: i }));
    },
    async run() {
      await Promise.all(
        handles.map(async (handle, writer) => {
          for (let i = writer; i < events.length; i += writerCount) {
            const event = events[i]!;
            event.timestamp = Date.now();
            await contender.append(handle, event);
          }
        }),
      );
    },
    async verify() {
      const expected = Math.ceil(events.length / sessionCount);
      await expectEvents(contender, contents[0]!.key, expected);
    },
  };
}

/** Two handles of one session take turns with two appends each, so that the handle is behind at each first one. */
function staleLane(contender: Contender): Lane {
  const payloads = newPayloads();
  let handles: unknown[] = [];
  let content: SessionContent;
  let events: Event[] = [];
  return {
    async prepare(count) {
      content = newContent(payloads, 0);
      await contender.fill([content]);
      handles = [await contender.open(content), await contender.open(content)];
      events = payloads.events(count, oneSessionKey);
    },
    async run() {
      for (const [i, event] of events.entries()) {
        event.timestamp = Date.now();
        await contender.append(handles[Math.floor(i / 2) % 2], event);
      }
    },
    verify: () => expectEvents(contender, content.key, events.length),
  };
}
