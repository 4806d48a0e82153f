import { appendLane, oneSessionKey } from './sessions.js';
import { lanes, type Workload } from './workload.js';

const DELTAS: { id: string; title: string; delta: (i: number) => Record<string, unknown> }[] = [
  { id: 'append-no-delta', title: 'Append without a delta', delta: () => ({}) },
  { id: 'append', title: 'Append with one session key', delta: oneSessionKey },
  {
    id: 'append-all-scopes',
    title: 'Append with keys in all three scopes',
    delta: (i) => ({ step: i, 'user:city': `Lisbon ${i % 7}`, 'app:bookings': i }),
  },
];

export const append: Workload = {
  name: 'append',
  note: 'To sessions that begin empty and get 20 events each.',
  async cases(open) {
    const contenders = await open();
    return Promise.all(
      DELTAS.map(async ({ id, title, delta }) => ({
        id,
        title,
        unit: 'append',
        maxCount: 400,
        lanes: await lanes(contenders, (contender) => appendLane(contender, { delta })),
      })),
    );
  },
};
