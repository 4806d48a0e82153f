import type { Event } from '@google/adk';
import type { SessionContent } from '../contenders/contender.js';
import { expectEvents, newContent, newPayloads, oneSessionKey } from './sessions.js';
import { count, lanes, type Workload } from './workload.js';

const SIZE = 1_000;

export const batch: Workload = {
  name: 'batch',
  note: 'Times are for an event. The peer has no such call and appends one by one, as many as it has time for.',
  async cases(open) {
    return [
      {
        id: `append-all-${SIZE}`,
        title: `Append ${count(SIZE)} events with one call`,
        unit: 'event',
        maxCount: SIZE,
        minCount: SIZE,
        lanes: await lanes(await open(), (contender) => {
          const payloads = newPayloads();
          let content: SessionContent;
          let handle: unknown;
          let events: Event[] = [];
          return {
            async prepare(size) {
              content = newContent(payloads, 0);
              await contender.fill([content]);
              handle = await contender.open(content);
              events = payloads.events(size, oneSessionKey);
            },
            async run() {
              for (const event of events) event.timestamp = Date.now();
              if (contender.appendAll) await contender.appendAll(handle, events);
              else for (const event of events) await contender.append(handle, event);
            },
            verify: () => expectEvents(contender, content.key, events.length),
          };
        }),
      },
    ];
  },
};
