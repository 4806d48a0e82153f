import { SessionMaintenance, type BatchOptions, type RepairedSession } from '../../../../src/index.js';
import { counted, quoted } from '../../../studio/src/operations/words.js';
import { withoutUndefined } from '../../../../src/model/json.js';
import type { Work } from '../run.js';
import { Unfinished, UsageError } from '../errors.js';
import { openFile } from '../files.js';

type Args = [string, string | undefined, string | undefined, BatchOptions & { save?: string }];

export const repair: Work<Args> = async (
  { em, codec, terminal, confirm },
  ...[appName, userId, sessionId, { save, dryRun, includeLeased }]
) => {
  const key = { appName, ...withoutUndefined({ userId, sessionId }) };
  const maintenance = new SessionMaintenance(em, codec);
  const planned = await maintenance.repair(key, { includeLeased, dryRun: true });
  const isDamaged = planned.damage.length + planned.stateValues.length > 0;
  if (dryRun || !isDamaged) {
    await terminal.result(saved(planned), () => (isDamaged ? lines(planned) : ['Nothing is damaged.']));
    if (isDamaged) throw new Unfinished();
    return;
  }
  if (save === undefined)
    throw new UsageError(
      'repair removes what cannot be read: name a file for it with --save, or see it with --dry-run.',
    );
  const taken = `${counted(planned.events.length, 'event')} and ${counted(planned.stateValues.length, 'state value')}`;
  await confirm(
    `This removes ${taken} from ${quoted(sessionId ?? userId ?? appName)}. Continue?`,
    'Nothing was changed.',
  );
  // The file is written before anything is removed; an existing file is not overwritten.
  const file = await openFile(save, 'wx');
  try {
    await file.write(`${JSON.stringify(saved(planned))}\n`);
    await file.sync();
    const repaired = await maintenance.repair(key, { includeLeased });
    // This also has what was damaged since the dry run.
    await file.write(`${JSON.stringify(saved(repaired))}\n`);
    await terminal.result(saved(repaired), () => [...lines(repaired), `What was removed is in ${save}.`]);
  } finally {
    await file.close();
  }
};

/** Contents in base64, since they may not be text. */
const saved = ({ damage, events, stateValues, changes }: RepairedSession) => ({
  damage,
  events: events.map((event) => ({ ...inBase64(event), parts: event.parts.map(inBase64) })),
  stateValues: stateValues.map(inBase64),
  changes: changes.map(inBase64),
});

const inBase64 = <Taken extends { content: Buffer | null }>(taken: Taken) => ({
  ...taken,
  content: taken.content?.toString('base64') ?? null,
});

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
