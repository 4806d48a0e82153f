import { randomBytes } from 'node:crypto';
import { compression, encryption } from '../../src/codecs/index.js';
import { MikroOrmSessionService } from '../../src/index.js';
import type { Codec } from '../../src/codecs/index.js';
import { Ours } from '../contenders/ours.js';
import type { Case } from '../measure.js';
import { appendLane, newContent, newPayloads, readLane } from './sessions.js';
import { count, oursOf, type Workload } from './workload.js';

const READ = 1_000;

const key = randomBytes(32);
const encrypted = encryption({ key: () => key, currentKey: 'k1' });
const CODECS: Readonly<Record<string, readonly Codec[]>> = {
  none: [],
  compression: [compression()],
  encryption: [encrypted],
  both: [compression(), encrypted],
};

const WITH: Readonly<Record<string, string>> = {
  none: 'without a codec',
  compression: 'with compression',
  encryption: 'with encryption',
  both: 'with compression and encryption',
};

/** The cost of the codecs of `adk-mikro-orm/codecs`, in the same tables. */
export const codecs: Workload = {
  name: 'codecs',
  note: 'Ours alone. The sessions that are read were written with the codecs.',
  isOnlyNamed: true,

  async cases(open) {
    const ours = await oursOf(open);
    const appends: Case[] = [];
    const reads: Case[] = [];
    for (const [name, codec] of Object.entries(CODECS)) {
      const contender = new Ours(...ours.parts, new MikroOrmSessionService(ours.orm.em, { codec }));
      const what = WITH[name] ?? name;
      appends.push({
        id: `append-${name}`,
        title: `Append ${what}`,
        unit: 'append',
        maxCount: 400,
        lanes: { ours: appendLane(contender) },
      });
      const content = newContent(newPayloads(), READ);
      await contender.appendAll(await contender.create(content.key, {}), content.events);
      reads.push({
        id: `read-${name}`,
        title: `Read ${count(READ)} events ${what}`,
        unit: 'read',
        maxCount: 100,
        lanes: { ours: readLane(contender, content.key, READ) },
      });
    }
    return [...appends, ...reads];
  },

  comparisons: () =>
    ['compression', 'encryption', 'both'].flatMap((name) => [
      comparison(`append-${name}`, `Append ${WITH[name]} against without`, 'append-none'),
      comparison(`read-${name}`, `Read ${count(READ)} events ${WITH[name]} against without`, 'read-none'),
    ]),
};

const comparison = (id: string, title: string, less: string) => ({ id: `codec-${id}`, title, more: id, less });
