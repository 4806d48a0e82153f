import { chown, mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities } from '../../../../entities/index.js';
import { databaseOptions } from '../../../../mikro-orm.config.js';
import { MikroOrmSessionService, migrate } from '../../../../src/index.js';
import { keyOf } from '../../processes/protocol.js';
import { STORM_SESSION } from '../../processes/storm-protocol.js';
import { WorkerBundle } from '../../../support/worker-bundle.js';
import { ClusterStorm, type StormResult, type StormSettings } from './cluster-storm.js';
import { MysqlServer, hasMariadb } from './mysql.js';
import { whileSupervised } from './processes.js';
import { PostgresqlServer, hasPostgresql } from './postgresql.js';
import { accountOf, describeWith, serverFolder } from './programs.js';
import { SmallDisk, hasSmallDisk } from './small-disk.js';

const WRITERS = 4;
const ROUNDS = 3;
/** Appends of each writer between two faults. */
const MEANWHILE = 25;

/** Settings that let files begin small and grow in small steps. */
const SMALL = [
  '--innodb-log-file-size=8M',
  '--innodb-autoextend-increment=1',
  '--innodb-data-file-path=ibdata1:4M:autoextend',
  '--innodb-temp-data-file-path=ibtmp1:2M:autoextend',
];

const noDisk = hasSmallDisk ? undefined : 'a small disk is mounted on Linux, as root';

describeWith(noDisk, 'a disk that is full', () => {
  const bundle = new WorkerBundle('test/faults/processes/storm-process.ts');
  let disk: SmallDisk;

  beforeAll(() => bundle.build());
  afterAll(() => bundle.remove());
  afterEach(() => disk.remove());

  /**
   * @param untilNoticed waits until writers notice that the disk is full.
   */
  async function storm(
    url: string,
    untilNoticed: (storm: ClusterStorm) => Promise<unknown>,
    settings?: StormSettings,
  ): Promise<StormResult> {
    const orm = await MikroORM.init({ ...(await databaseOptions(url)), entities: adkEntities() });
    let running: ClusterStorm | undefined;
    try {
      await migrate(orm);
      await new MikroOrmSessionService(orm.em).createSession(keyOf(STORM_SESSION));
      running = new ClusterStorm(bundle.path, Array(WRITERS).fill(url), settings);
      for (let round = 0; round < ROUNDS; round++) {
        await running.untilAcknowledged(MEANWHILE);
        disk.fill();
        await untilNoticed(running);
        disk.empty();
      }
      await running.untilAcknowledged(MEANWHILE);
      return await running.end(orm.em);
    } finally {
      running?.kill();
      await orm.close(true);
    }
  }

  const untilAllFail = ({ writers }: ClusterStorm) => Promise.all(writers.map((writer) => writer.untilFailed(3)));

  const untilImpatientFail = ({ writers }: ClusterStorm) =>
    Promise.all(writers.filter((_, i) => i % 2 === 1).map((writer) => writer.untilFailed(3)));

  const kindsOf = ({ failed }: StormResult) => [...new Set(failed.map(({ outcome, code }) => `${outcome} ${code}`))];

  test('O1 O4 O9 of SQLite: calls fail with SQLITE_FULL, and continue when there is space; so do readers of the log', async () => {
    disk = new SmallDisk(16);
    const result = await storm(`sqlite:${path.join(disk.folder, 'test.db')}`, untilAllFail);
    console.info('SQLite on a disk that was full', result.figures);
    expect(result.found).toEqual([]);
    expect(kindsOf(result)).toEqual(['none SQLITE_FULL']);
  });

  describeWith(hasPostgresql ? undefined : 'install postgresql', 'of PostgreSQL', () => {
    let folder: string;
    let server: PostgresqlServer;

    beforeEach(async () => {
      folder = await serverFolder('full-disk', 'postgres');
    });
    afterEach(async () => {
      await server.kill();
      await rm(folder, { recursive: true, force: true });
    });

    test('O1 O4 O9 that has the tables: calls fail with 53100, and continue when there is space; so do readers of the log', async () => {
      disk = new SmallDisk(24);
      server = await PostgresqlServer.create('server', folder, {});
      await server.start();
      const tables = path.join(disk.folder, 'tables');
      await mkdir(tables);
      const { uid = 0, gid = 0 } = accountOf('postgres');
      await chown(tables, uid, gid);
      await server.execute(`create tablespace small location '${tables}'`);
      await server.execute('create database storm tablespace small');
      const result = await storm(server.url('storm'), untilAllFail);
      console.info('PostgreSQL with tables on a disk that was full', result.figures);
      expect(result.found).toEqual([]);
      expect(kindsOf(result)).toEqual(['none 53100']);
    });

    test('O1 O4 O9 that has the write-ahead log: the server crashes; calls wait or fail, and continue when it is back', async () => {
      disk = new SmallDisk(32);
      // Without files to reuse, the server needs a new one for each megabyte.
      const settings = { max_wal_size: '1GB', checkpoint_timeout: '1h', wal_recycle: 'off' };
      server = await PostgresqlServer.create('server', folder, settings, ['--waldir', path.join(disk.folder, 'wal')]);
      await server.start();
      await server.execute('create database storm');
      // Without space it may not restart by itself.
      const { figures, failedOfPatient, found } = await whileSupervised(server, () =>
        storm(server.url('storm'), untilImpatientFail),
      );
      console.info('PostgreSQL with its log on a disk that was full', figures);
      expect(found).toEqual([]);
      // It was an outage, not an error of the appends.
      expect(failedOfPatient).toEqual([]);
    });
  });

  describeWith(hasMariadb ? undefined : 'install mariadb-server', 'of MariaDB', () => {
    let server: MysqlServer;

    afterEach(() => server.kill());

    test('O1 O4 O9 that has the data: calls fail with ER_RECORD_FILE_FULL, and continue when there is space', async () => {
      disk = new SmallDisk(64);
      server = await MysqlServer.mariadb(path.join(disk.folder, 'data'), SMALL);
      await server.start();
      await server.execute('create database storm');
      // The server may crash ("InnoDB: Error (Out of disk space) in rollback"), or not answer a commit in time. Then writers that
      // do not wait outages out get the errors of lost connections.
      const result = await whileSupervised(server, () => storm(server.url('storm'), untilImpatientFail));
      const { figures, failedOfPatient, found } = result;
      console.info('MariaDB on a disk that was full', figures);
      expect(found).toEqual([]);
      expect(kindsOf(result)).toContain('none ER_RECORD_FILE_FULL');
      // Those are outages: writers that wait them out get only this error.
      expect(failedOfPatient.filter(({ code }) => code !== 'ER_RECORD_FILE_FULL')).toEqual([]);
    });

    test('O1 O4 O9 that has the binary log, too: the server waits for space; calls wait or fail, and continue', async () => {
      disk = new SmallDisk(64);
      server = await MysqlServer.mariadb(path.join(disk.folder, 'data'), [...SMALL, '--log-bin=binary-log']);
      await server.start();
      await server.execute('create database storm');
      // MariaDB looks for space once a minute, or when a driver kills a statement that it gave up, which mysql2 does not.
      const { figures, failedOfPatient, found } = await storm(server.url('storm'), untilImpatientFail, {
        retry: { forMs: 120_000 },
      });
      console.info('MariaDB with its binary log on a disk that was full', figures);
      expect(found).toEqual([]);
      expect(failedOfPatient.filter(({ code }) => code !== 'ER_RECORD_FILE_FULL')).toEqual([]);
    });
  });
});
