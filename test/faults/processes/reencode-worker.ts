import { createEvent } from '@google/adk';
import { MikroOrmSessionService, SessionMaintenance } from '../../../src/index.js';
import { openOrm } from './open-orm.js';
import { codecWith, type Job, type Report } from './reencode-protocol.js';

// A process that re-encodes texts with another key, or appends with it, until it is killed.

async function run({ database, work }: Job): Promise<void> {
  const orm = await openOrm(database);
  const codec = codecWith('new', 'old');
  if (work === 'reencode') {
    const onProgress = ({ batches }: { batches: number }) => report({ done: batches });
    await new SessionMaintenance(orm.em, { codec }).reencode({ batchSize: 7, pauseMs: 1, onProgress });
    return;
  }
  const service = new MikroOrmSessionService(orm.em, { codec });
  const session = await service.getSession(work);
  if (!session) throw new Error('There is no session to append to');
  for (let n = 1; ; n++) {
    const content = { role: 'model', parts: [{ text: `appended ${n}` }] };
    const actions = { stateDelta: { appended: n } };
    const id = `${process.pid}-${n}`;
    await service.appendEvent({ session, event: createEvent({ id, author: 'agent', content, actions }) });
    report({ done: n });
  }
}

function report(message: Report): void {
  process.send?.(message);
}

process.on('message', (job: Job) => {
  run(job).catch((error: unknown) => report({ error: String(error) }));
});
process.on('disconnect', () => process.exit());
