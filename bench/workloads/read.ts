import { newContent, newPayloads, readLane } from './sessions.js';
import { count, lanes, type Workload } from './workload.js';

const SIZES = [20, 1_000, 10_000];

/** Each size in databases of its own, since the peer also searches the events of other sessions. */
export const read: Workload = {
  name: 'read',
  async cases(open) {
    const cases = [];
    for (const size of SIZES) {
      const contenders = await open();
      const content = newContent(newPayloads(), size, { city: 'Lisbon', nights: 3 });
      cases.push({
        id: `read-${size}`,
        title: `Read a session of ${count(size)} events`,
        unit: 'read',
        maxCount: 200,
        lanes: await lanes(contenders, async (contender) => {
          await contender.fill([content]);
          return readLane(contender, content.key, size);
        }),
      });
    }
    return cases;
  },
};
