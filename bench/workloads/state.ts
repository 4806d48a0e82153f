import { appendLane, newPayloads } from './sessions.js';
import { lanes, type Workload } from './workload.js';

const KEY_BYTES = 1_000;
const SIZES = [
  { id: '1kb', title: '1 KB', keys: 1 },
  { id: '100kb', title: '100 KB', keys: 100 },
  { id: '1mb', title: '1 MB', keys: 1_000 },
];

/** Each size in databases of its own, since the peer also searches the events of other sessions. */
export const state: Workload = {
  name: 'state',
  note: 'The other state is in keys of 1 KB.',
  async cases(open) {
    const cases = [];
    for (const { id, title, keys } of SIZES) {
      const payloads = newPayloads(keys);
      const other = Object.fromEntries(Array.from({ length: keys }, (_, i) => [`note_${i}`, payloads.text(KEY_BYTES)]));
      cases.push({
        id: `append-state-${id}`,
        title: `Append with ${title} of other state`,
        unit: 'append',
        maxCount: 200,
        lanes: await lanes(await open(), (contender) => appendLane(contender, { state: other, perSession: 200 })),
      });
    }
    return cases;
  },
  comparisons: () => [
    {
      id: 'append-large-state',
      title: 'Append with 1 MB of other state against 1 KB',
      more: 'append-state-1mb',
      less: 'append-state-1kb',
    },
  ],
};
