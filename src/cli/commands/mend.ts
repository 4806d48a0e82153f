import { open } from 'node:fs/promises';
import type { EntityManager } from '@mikro-orm/core';
import { SessionMaintenance } from '../../maintenance/session-maintenance.js';
import type { RepairedSession } from '../../maintenance/repair.js';
import { passingOf } from '../../model/failures.js';
import { MikroOrmSessionService } from '../../sessions/session-service.js';
import type { PastPlace } from '../../sessions/history.js';
import { migrate } from '../../../migrations/migrate.js';
import { migrationStatus } from '../../../migrations/status.js';
import { readerOf } from '../reader.js';
import type { Work } from '../run.js';
import { UsageError } from '../usage-error.js';
import { counted, quoted } from '../words.js';

export const runMigrations: Work<[{ dryRun?: true }]> = async ({ orm, em, terminal }, { dryRun }) => {
  const { pending } = await throughOutages(em, async () => {
    const status = await migrationStatus(orm);
    if (!dryRun) await migrate(orm);
    return status;
  });
  const verb = dryRun ? 'Would run' : 'Ran';
  await terminal.result({ migrations: pending }, () =>
    pending.length === 0 ? ['The tables are up to date.'] : pending.map((name) => `${verb} ${name}`),
  );
  return undefined;
};

/** For how long a migration that an outage interrupts is tried again: as long as a call of the services. */
const OUTAGE_MS = 30_000;

/** Tries again while a server is starting or failing over. @param work may run several times. */
async function throughOutages<T>(em: EntityManager, work: () => Promise<T>): Promise<T> {
  const { stores, read, transactions } = readerOf(em, 'migrate');
  let outageBegan: number | undefined;
  for (;;) {
    await read((sql) => stores.maintenance.now(sql));
    try {
      return await work();
    } catch (error) {
      outageBegan ??= performance.now();
      const isOutage = passingOf(transactions.failureOf(error)) === 'outage';
      if (!isOutage || performance.now() - outageBegan > OUTAGE_MS) throw error;
    }
  }
}

export interface RepairFlags {
  save?: string;
  yes?: true;
  dryRun?: true;
  includeLeased?: true;
}

export const repair: Work<[string, string, string, RepairFlags]> = async (
  { em, terminal, signal },
  appName,
  userId,
  sessionId,
  { save, yes, dryRun, includeLeased },
) => {
  const maintenance = new SessionMaintenance(em);
  const key = { appName, userId, sessionId };
  const planned = await maintenance.repair(key, { includeLeased, dryRun: true });
  const isDamaged = planned.damage.length + planned.stateValues.length > 0;
  if (dryRun || !isDamaged) {
    await terminal.result(saved(planned), () => (isDamaged ? lines(planned) : ['Nothing is damaged.']));
    return isDamaged ? 'failed' : undefined;
  }
  if (save === undefined)
    throw new UsageError(
      'repair takes out what cannot be read: name a file for it with --save, or look with --dry-run.',
    );
  const taken = `${counted(planned.events.length, 'event')} and ${counted(planned.stateValues.length, 'state value')}`;
  if (!yes && !(await terminal.confirm(`This takes out ${taken} of ${quoted(sessionId)}. Go on?`, signal))) {
    terminal.note('Nothing was changed.');
    return 'failed';
  }
  // Before anything is taken out; a file that exists is not overwritten.
  const file = await open(save, 'wx');
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
function saved({ damage, events, stateValues }: RepairedSession) {
  const text = (content: Buffer | null) => content?.toString('base64') ?? null;
  return {
    damage,
    events: events.map(({ content, parts, ...event }) => ({
      ...event,
      content: text(content),
      parts: parts.map(({ part, content }) => ({ part, content: text(content) })),
    })),
    stateValues: stateValues.map(({ key, content }) => ({ key, content: text(content) })),
  };
}

function lines({ damage, stateValues }: RepairedSession): string[] {
  return [
    ...damage.map(
      ({ from, to, problem }) => `${from === to ? `event ${from}` : `events ${from} to ${to}`}: ${problem}`,
    ),
    ...stateValues.map(({ key }) => `state ${quoted(key)}: unreadable`),
  ];
}

export interface PlaceFlags {
  at?: number;
  before?: string;
}

const placeOf = ({ at, before }: PlaceFlags): PastPlace => ({ at, beforeInvocationId: before });

export const fork: Work<[string, string, string, PlaceFlags & { as?: string }]> = async (
  { em, terminal },
  appName,
  userId,
  sessionId,
  { as, ...place },
) => {
  const key = { appName, userId, sessionId };
  const made = await new MikroOrmSessionService(em).forkSession(key, {
    ...placeOf(place),
    as,
  });
  await terminal.result({ appName, userId, sessionId: made.id, events: made.events.length }, () => [
    `Made session ${quoted(made.id)} with ${counted(made.events.length, 'event')}.`,
  ]);
  return undefined;
};

export const rewind: Work<[string, string, string, PlaceFlags & { yes?: true }]> = async (
  { em, terminal, signal },
  appName,
  userId,
  sessionId,
  { yes, ...place },
) => {
  if (place.at === undefined && place.before === undefined) throw new UsageError('rewind needs --at or --before.');
  const question = `This deletes the events of ${quoted(sessionId)} after that. Go on?`;
  if (!yes && !(await terminal.confirm(question, signal))) {
    terminal.note('Nothing was deleted.');
    return 'failed';
  }
  const key = { appName, userId, sessionId };
  const session = await new MikroOrmSessionService(em).rewindSession(key, placeOf(place));
  await terminal.result({ ...key, events: session.events.length }, () => [
    `Session ${quoted(sessionId)} has ${counted(session.events.length, 'event')} now.`,
  ]);
  return undefined;
};
