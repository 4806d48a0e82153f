import { SessionMaintenance } from '../../maintenance/session-maintenance.js';
import type { RepairedSession } from '../../maintenance/repair.js';
import type { SessionWork } from '../run.js';
import { UsageError } from '../usage-error.js';
import { counted, quoted } from '../../operations/words.js';
import { openFile } from '../files.js';

interface RepairFlags {
  save?: string;
  yes?: true;
  dryRun?: true;
  includeLeased?: true;
}

export const repair: SessionWork<RepairFlags> = async (
  { em, codec, terminal, signal },
  key,
  { save, yes, dryRun, includeLeased },
) => {
  const maintenance = new SessionMaintenance(em, codec);
  const planned = await maintenance.repair(key, { includeLeased, dryRun: true });
  const isDamaged = planned.damage.length + planned.stateValues.length > 0;
  if (dryRun || !isDamaged) {
    await terminal.result(saved(planned), () => (isDamaged ? lines(planned) : ['Nothing is damaged.']));
    return isDamaged ? 'failed' : undefined;
  }
  if (save === undefined)
    throw new UsageError(
      'repair takes out what cannot be read: name a file for it with --save, or see it with --dry-run.',
    );
  const taken = `${counted(planned.events.length, 'event')} and ${counted(planned.stateValues.length, 'state value')}`;
  if (!yes && !(await terminal.confirm(`This takes out ${taken} of ${quoted(key.sessionId)}. Continue?`, signal))) {
    terminal.note('Nothing was changed.');
    return 'failed';
  }
  // The file is written before anything is taken out; one that exists is not overwritten.
  const file = await openFile(save, 'wx');
  try {
    await file.write(`${JSON.stringify(saved(planned))}\n`);
    await file.sync();
    const repaired = await maintenance.repair(key, { includeLeased });
    // What was damaged since is in it, too.
    await file.write(`${JSON.stringify(saved(repaired))}\n`);
    await terminal.result(saved(repaired), () => [...lines(repaired), `What was taken out is in ${save}.`]);
  } finally {
    await file.close();
  }
  return undefined;
};

/** Contents as base64, since they may be no text. */
function saved({ damage, events, stateValues, changes }: RepairedSession) {
  const text = (content: Buffer | null) => content?.toString('base64') ?? null;
  return {
    damage,
    events: events.map(({ content, parts, ...event }) => ({
      ...event,
      content: text(content),
      parts: parts.map(({ part, content }) => ({ part, content: text(content) })),
    })),
    stateValues: stateValues.map(({ key, content }) => ({ key, content: text(content) })),
    changes: changes.map(({ content, ...change }) => ({ ...change, content: text(content) })),
  };
}

function lines({ damage, stateValues }: RepairedSession): string[] {
  return [
    ...damage.map(({ from, to, problem }) =>
      problem === 'change'
        ? `change after event ${from}: unreadable`
        : `${from === to ? `event ${from}` : `events ${from} to ${to}`}: ${problem}`,
    ),
    ...stateValues.map(({ key }) => `state ${quoted(key)}: unreadable`),
  ];
}
