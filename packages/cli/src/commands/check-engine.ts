import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import type { MikroORM } from '@mikro-orm/core';
import { acceptOtherEngines } from '../../../../src/internal.js';
import { supportedDialect } from '../../../../entities/dialect-name.js';
import { migrate, adkServices } from '../../../../src/index.js';
import {
  checkArtifactService,
  checkMemoryService,
  checkSessionService,
  type ServiceStore,
} from '../../../session-contract/src/index.js';
import { connect } from '../connect.js';
import { Unfinished, UsageError } from '../errors.js';
import type { Work } from '../run.js';

/** Runs the published rules on a server, other engines included, in a database that it makes and drops. */
export const checkEngine: Work<[]> = async ({ em, url: given, terminal, signal }) => {
  if (given === undefined || supportedDialect(em.getPlatform()) === 'sqlite')
    throw new UsageError('Name the server with --url postgresql://…, mysql://… or mariadb://…');
  acceptOtherEngines();
  const database = `adk_check_${randomBytes(6).toString('hex')}`;
  const url = Object.assign(new URL(given), { pathname: database }).href;
  const orms: MikroORM[] = [];
  const open = async () => {
    signal.throwIfAborted();
    const orm = await connect({ url }, false);
    orms.push(orm);
    return orm;
  };
  const services = async () => adkServices((await open()).em);
  const close = async () => {
    for (const orm of orms.splice(0)) await orm.close(true);
  };
  const reopen = async ({ killed }: { killed: boolean }): Promise<ServiceStore> => {
    if (!killed) await close();
    return { service: (await services()).sessionService, another: (await services()).sessionService, reopen };
  };
  await em.getConnection().execute(`create database ${database}`);
  terminal.note(`Runs the tests in the database ${database}, and drops it at the end.`);
  const ended = new Promise<never>((_, reject) =>
    signal.addEventListener('abort', () => reject(new Unfinished('')), { once: true }),
  );
  const check = async () => {
    await migrate(await open());
    const [one, other] = [await services(), await services()];
    const storeOf = <Name extends keyof typeof one>(name: Name) => ({
      name,
      open: () => Promise.resolve({ service: one[name], another: other[name] }),
    });
    return [
      ...(await checkArtifactService(storeOf('artifactService'))),
      ...(await checkMemoryService(storeOf('memoryService'))),
      // Last: it closes and opens services.
      ...(await checkSessionService({ name: database, open: () => reopen({ killed: true }) })),
    ];
  };
  try {
    const verdicts = (await Promise.race([check(), ended])).map(({ error, level: _, ...verdict }) => ({
      ...verdict,
      ...(error !== undefined && { error: error instanceof Error ? error.message : inspect(error) }),
    }));
    await terminal.result(verdicts, () =>
      terminal.table([
        ['rule', 'result', '', ''],
        ...verdicts.map(({ rule, result, title, error = '' }) => [rule, result, title, error]),
      ]),
    );
    const broken = verdicts.filter(({ result }) => result === 'broken').length;
    if (broken > 0) throw new Unfinished(`${broken} of ${verdicts.length} tests fail.`);
  } finally {
    await close();
    await em.getConnection().execute(`drop database ${database}`);
    // The tests would run on without the database, and keep the process alive.
    if (signal.aborted) process.kill(process.pid, 'SIGINT');
  }
};
