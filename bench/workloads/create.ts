import { APP, USER } from './sessions.js';
import { lanes, type Workload } from './workload.js';

let created = 0;

export const create: Workload = {
  name: 'create',
  async cases(open) {
    const contenders = await open();
    return [
      {
        id: 'create',
        title: 'Create a session with 3 keys of state',
        unit: 'session',
        maxCount: 300,
        lanes: await lanes(contenders, (contender) => ({
          async run(count) {
            for (let i = 0; i < count; i++) {
              const key = { appName: APP, userId: USER, sessionId: `created-${++created}` };
              await contender.create(key, { city: 'Lisbon', nights: 3, guests: [{ name: 'Ada', age: 36 }] });
            }
          },
        })),
      },
    ];
  },
};
