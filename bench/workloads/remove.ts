import type { SessionContent } from '../contenders/contender.js';
import { newContent, newPayloads } from './sessions.js';
import { count, lanes, type Workload } from './workload.js';

export const remove: Workload = {
  name: 'delete',
  async cases(open, { deletedEvents }) {
    return [
      {
        id: `delete-${deletedEvents}`,
        title: `Delete a session of ${count(deletedEvents)} events`,
        unit: 'delete',
        maxCount: 1,
        lanes: await lanes(await open(), (contender) => {
          const payloads = newPayloads();
          let content: SessionContent;
          return {
            async prepare() {
              content = newContent(payloads, deletedEvents);
              await contender.fill([content]);
            },
            async run() {
              await contender.delete(content.key);
            },
          };
        }),
      },
    ];
  },
};
