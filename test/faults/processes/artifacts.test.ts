import { setTimeout } from 'node:timers/promises';
import type { MikroORM } from '@mikro-orm/core';
import { MikroOrmArtifactService } from '../../../src/index.js';
import { randomOf } from '../../support/random-numbers.js';
import { openDatabases } from './opened.js';
import { contentOf, keyOf } from './protocol.js';

const PROCESSES = 16;
const SAVES = 3;
const KILLS = process.env['ADK_TEST_LONG'] ? 20 : 5;

const { opened, openedChild } = openDatabases();

/** The ids of all versions, in the order of their numbers. @throws DamagedArtifactError if one is incomplete. */
async function idsOf(orm: MikroORM, filename: string): Promise<string[]> {
  const service = new MikroOrmArtifactService(orm.em);
  const file = { ...keyOf('files'), filename };
  const versions = await service.listVersions(file);
  expect(versions).toEqual(versions.map((_, i) => i));
  const ids: string[] = [];
  for (const version of versions) {
    const text = (await service.loadArtifact({ ...file, version }))!.text!;
    const [id = ''] = text.split(' ');
    expect(text === contentOf(id).text).toBe(true);
    ids.push(id);
  }
  return ids;
}

test('P2 sixteen processes save one name: each save gets a version of its own', async () => {
  const savers = await Promise.all(Array.from({ length: PROCESSES }, openedChild));
  for (const { database, orm } of opened) {
    const { name } = database;
    const saved = await Promise.all(
      savers.map((child, i) => child.call('save', { name, filename: 'shared', label: `p${i}`, count: SAVES })),
    );
    const ids = await idsOf(orm, 'shared');
    expect(ids).toHaveLength(PROCESSES * SAVES);
    for (const [i, versions] of saved.entries())
      expect([name, versions.map((version) => ids[version])]).toEqual([name, versions.map((_, n) => `p${i}-${n}`)]);
  }
}, 600_000);

test(`P9 a process that saves is killed ${KILLS} times: what it acknowledged is there once, and each version is whole`, async () => {
  const random = randomOf('killed saves');
  const acknowledged: string[] = [];
  for (let life = 1; life <= KILLS; life++) {
    const child = await openedChild();
    const saving = child.call('saveForever', { filename: 'killed', label: `life${life}` });
    const end = saving.catch(String);
    for (const { database } of opened)
      await Promise.race([saving, child.untilAcknowledged(1 + random(3), database.name)]);
    // A moment that depends on no acknowledgement.
    await setTimeout(random(30));
    await child.kill();
    expect(await end).toBe('Error: The process has ended');
    acknowledged.push(...child.acknowledged.map(({ name, id }) => `${name} ${id}`));
  }
  const stored: string[] = [];
  for (const { database, orm } of opened)
    stored.push(...(await idsOf(orm, 'killed')).map((id) => `${database.name} ${id}`));
  expect(new Set(stored).size).toBe(stored.length);
  expect(acknowledged.filter((id) => !stored.includes(id))).toEqual([]);
  // Each process leaves at most one version per database that it could not acknowledge.
  expect(stored.length - acknowledged.length).toBeLessThanOrEqual(KILLS * opened.length);
}, 600_000);

test('P14 a process that reads a stream is killed: nothing of it is stored', async () => {
  const child = await openedChild();
  const end = child.call('stream', { filename: 'first' }).catch(String);
  for (const { database } of opened) await child.untilAcknowledged(1, database.name);
  await child.kill();
  expect(await end).toBe('Error: The process has ended');
  const key = keyOf('streams');
  for (const { orm } of opened) {
    const execute = async (text: string): Promise<unknown[]> => orm.em.getConnection().execute(text);
    for (const table of ['artifacts', 'artifact_versions', 'artifact_parts'])
      expect(await execute(`select 1 from adk_${table} where session_id = 'streams'`)).toEqual([]);
    expect(
      await new MikroOrmArtifactService(orm.em).saveArtifact({ ...key, filename: 'first', artifact: { text: 'x' } }),
    ).toBe(0);
  }
}, 600_000);
