import { version as adkVersion } from '@google/adk';
import { Utils, type EntityManager } from '@mikro-orm/core';
import {
  migrationStatus,
  hostKeys,
  layoutOf,
  type Dialect,
  type SqlRunner,
  databaseTime,
  Database,
} from '../../../../src/internal.js';
import { TRAITS, type DialectName } from '../../../../entities/dialect-name.js';
import { AdkMikroOrmError } from '../../../../src/index.js';
import { now } from '../../../../src/model/clock.js';
import type { CodecOptions } from '../../../../src/model/options.js';
import { packageVersion } from '../../../../src/model/version.js';
import { SAMPLED, countPending, largestMemories, miscounted, serverSetting, storedEncodings } from './health.js';
import { schemaDifferences } from './schema-differences.js';
import { SERVER_SETTINGS, type ServerSetting } from './server-settings.js';
import { NAME_CODEC, counted, number, quoted, repairCommand } from './words.js';

export interface Finding {
  check: string;
  /** `advice`: safety or speed could be better. `wrong`: something does not work. */
  state: 'ok' | 'advice' | 'wrong';
  found: string;
  /** What to do. */
  advice?: string;
}

interface Subject {
  em: EntityManager;
  read: SqlRunner;
  dialect: Dialect;
  poolMax: number;
}

/** One check. @returns also its name, if that depends on the result; undefined if it does not apply. */
type Check = (subject: Subject) => Promise<UnnamedFinding | undefined> | UnnamedFinding;
type UnnamedFinding = Omit<Finding, 'check'> & Partial<Pick<Finding, 'check'>>;

/** A difference between the clocks that people would notice in lists of sessions. */
const CLOCK_MS = 2_000;

/** How many rows are counted, and sessions named, at most. */
const MOST = 10_000;
const MOST_NAMED = 10;

/** Searching this many memories takes about 50 ms. */
const MANY_MEMORIES = 20_000;

/**
 * Checks everything that must be right, and says what to do about what is not. Nothing is written.
 *
 * @param options.readsAll false leaves out the checks that read the keys of all events and changes.
 * @param options.codec the codec of the services.
 */
export async function* examine(
  em: EntityManager,
  { readsAll = true, ...codec }: CodecOptions & { readsAll?: boolean } = {},
): AsyncGenerator<Finding> {
  // Without retries: whether the server answers is one of the questions.
  const database = new Database(em, { ...codec, retry: { attempts: 1 }, timeoutMs: 0 });
  const read = database.reader('doctor');
  const { dialect, system } = database;
  // Like MikroORM and its drivers.
  const poolMax = em.config.get('pool')?.max ?? (TRAITS[system].isInProcess ? 1 : 10);
  const subject: Subject = { em, read, dialect, poolMax };
  for (const [check, examineIt] of checksOf(database, readsAll)) {
    try {
      const found = await examineIt(subject);
      if (!found) continue;
      const finding = { check, ...found };
      yield finding;
      // The following checks would fail for the same reason.
      if (finding.state === 'wrong') return;
    } catch (error) {
      if (!(error instanceof AdkMikroOrmError)) throw error;
      yield { check, state: 'wrong', found: 'failed', advice: error.message };
      return;
    }
  }
}

/** The checks in order, with the name that one has if it fails. */
const checksOf = (
  { system, dialect }: { system: DialectName; dialect: Dialect },
  readsAll: boolean,
): [string, Check][] => [
  ['versions', versions],
  ['connection', connection],
  ['pool', pool],
  ...SERVER_SETTINGS[system].map((setting): [string, Check] => ['settings', settingOf(setting)]),
  ['clock', clock],
  ['tables', tables],
  ['indexes, keys and collations', schema],
  ['foreign keys to our tables', references],
  ...(dialect.distributed ? [['distribution', distribution] satisfies [string, Check]] : []),
  ['event log', eventLog],
  ...(readsAll ? READING_ALL : []),
];

const versions: Check = () => {
  const ours = `adk-mikro-orm ${packageVersion}, @google/adk ${adkVersion}, MikroORM ${Utils.getORMVersion()}`;
  return { state: 'ok', found: `${ours}, Node.js ${process.versions.node}` };
};

const connection: Check = async ({ read }) => {
  const began = now();
  await read(databaseTime);
  const took = now() - began;
  return { state: 'ok', found: `answered in ${took.toFixed(took < 10 ? 1 : 0)} ms` };
};

const pool: Check = ({ poolMax }) => ({ state: 'ok', found: `${counted(poolMax, 'connection')} at most` });

const settingOf =
  (setting: ServerSetting): Check =>
  async ({ read, ...used }) => {
    const found = await read((sql) => serverSetting(sql, setting));
    const advice = setting.advice(found, used);
    const state = advice === undefined ? 'ok' : setting.isRequired ? 'wrong' : 'advice';
    return { check: setting.name, state, found, advice };
  };

const clock: Check = async ({ read }) => {
  const before = Date.now();
  const time = await read(databaseTime);
  const ahead = Math.round(time - (before + Date.now()) / 2);
  const found = `the database's is ${Math.abs(ahead)} ms ${ahead < 0 ? 'behind' : 'ahead'}`;
  if (Math.abs(ahead) < CLOCK_MS) return { state: 'ok', found };
  return { state: 'advice', found, advice: 'Synchronise the clocks: times of both are compared.' };
};

const tables: Check = async ({ em }) => {
  const { pending, problem } = await migrationStatus({ em });
  if (problem !== undefined) return { state: 'wrong', found: 'not as this version needs them', advice: problem };
  if (pending.length === 0) return { state: 'ok', found: 'as this version needs them' };
  // The host has migrations of its own, or generated the schema.
  return { state: 'ok', found: `as this version needs them, made without ${pending.join(', ')}` };
};

const schema: Check = async ({ em, read }) => {
  const statements = await schemaDifferences(em, read);
  if (statements.length === 0) return { state: 'ok', found: 'as the entities have them' };
  const advice = ['Run:', ...statements].join('\n');
  return { state: 'wrong', found: 'the tables lack what the entities have', advice };
};

const references: Check = async ({ read }) => {
  const keys = await read(hostKeys);
  if (keys.length === 0) return { state: 'ok', found: 'no other table refers to ours' };
  const named = keys.map(
    ({ table, constraint, target, rule }) => `${table} to ${target} (${constraint}, on delete ${rule})`,
  );
  const found = named.join('; ');
  const advice = keys.flatMap(({ missingIndex }) => missingIndex ?? []);
  if (advice.length === 0) return { state: 'ok', found };
  return {
    state: 'advice',
    found,
    advice: ['For each session that is deleted, the whole table is read. Make an index:', ...advice].join('\n'),
  };
};

const distribution: Check = async ({ read }) => {
  const layout = await read(layoutOf);
  if (!layout) return undefined;
  const { placed, unplaced, nodes, shards } = layout;
  if (placed.size === 0) return { state: 'ok', found: 'Citus is here, and distributes none of the tables' };
  const where = [...placed].map(([placement, tables]) => `${tables} tables ${placement}`).join(', ');
  const found = `${where}; ${shards} shards, ${nodes} nodes`;
  if (unplaced.length === 0) return { state: 'ok', found };
  const by = placed.has('with the schema') ? 'schema' : 'user';
  const advice = `Stop what writes to them, and run: npx adk-mikro-orm distribute --by ${by} --move`;
  return { state: 'advice', found: `${found}; not placed: ${unplaced.join(', ')}`, advice };
};

const eventLog: Check = async ({ read }) => {
  const count = await read((sql) => countPending(sql, MOST));
  if (count === 0) return { state: 'ok', found: 'each entry has its position' };
  return { state: 'ok', found: `${shown(count)} without a position yet; the next reader gives it to them` };
};

const sessions: Check = async ({ read }) => {
  const damaged = await read((sql) => miscounted(sql, MOST_NAMED));
  if (damaged.length === 0)
    return { state: 'ok', found: 'each has the events that its row counts (contents were not read)' };
  const commands = damaged.map(({ appName, userId, sessionId }) => repairCommand([appName, userId, sessionId]));
  const most = damaged.length === MOST_NAMED ? 'at least ' : '';
  const found = `${most}${damaged.length} have other events than their rows count`;
  return { state: 'wrong', found, advice: ['See what is missing:', ...commands].join('\n') };
};

const memory: Check = async ({ read }) => {
  const large = await read((sql) => largestMemories(sql, MANY_MEMORIES, MOST_NAMED));
  if (large.length === 0) return { state: 'ok', found: `nobody has more than ${number(MANY_MEMORIES)} memories` };
  const names = large.map(
    ({ appName, userId, memories }) =>
      `${number(memories)} of ${userId === '' ? '' : `${quoted(userId)} in `}${quoted(appName)}`,
  );
  return {
    state: 'advice',
    found: `a search reads many memories: ${names.join(', ')}`,
    advice:
      'Forget old ones: npx adk-mikro-orm memory forget <app> <user> --before <time>. Those that expire are deleted by npx adk-mikro-orm prune.',
  };
};

const encodings: Check = async ({ read }) => {
  const found = await read(storedEncodings);
  const where = `in the first and the last ${number(SAMPLED)} rows of each table`;
  if (found.size === 0) return { state: 'ok', found: `no text is encoded ${where}` };
  const named = (isKnown: boolean) => [...found.keys()].filter((each) => found.get(each) === isKnown).join('; ');
  const [known, unknown] = [named(true), named(false)];
  const has = known && `the codec knows ${known}`;
  if (unknown === '') return { state: 'ok', found: `${has} (${where})` };
  const lacks = `texts are encoded with ${unknown}, for which there is no codec`;
  return { state: 'wrong', found: [lacks, has].filter(Boolean).join('; '), advice: NAME_CODEC };
};

const READING_ALL: [string, Check][] = [
  ['sessions', sessions],
  ['memory', memory],
  ['codecs', encodings],
];

/** A number that was counted up to `MOST`. */
const shown = (count: number) => (count >= MOST ? `${MOST} or more` : String(count));
