import type { Contender } from '../contenders/contender.js';
import type { Case } from '../measure.js';
import { appendLane } from './sessions.js';
import type { Workload } from './workload.js';

/** What the last migration costs: the version before it and this one, each on tables of its own, in the same rounds. */
export const upgrade: Workload = {
  name: 'upgrade',
  note: 'Ours alone, before the last migration and after it.',
  isOnlyNamed: true,

  async cases(open) {
    const { ours, previous } = await open(['ours', 'previous']);
    if (!previous) throw new Error('Two versions are needed.');
    return [appendCase('now', ours), appendCase('previous', previous)];
  },

  comparisons: () => [
    {
      id: 'upgrade',
      title: 'Append after the last migration against before',
      more: 'upgrade-now',
      less: 'upgrade-previous',
    },
  ],
};

function appendCase(when: 'previous' | 'now', contender: Contender): Case {
  return {
    id: `upgrade-${when}`,
    title: when === 'now' ? 'Append, this version' : 'Append, the version before',
    unit: 'append',
    maxCount: 400,
    lanes: { ours: appendLane(contender, { delta: (i) => ({ step: i, 'user:step': i }) }) },
  };
}
