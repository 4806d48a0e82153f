import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { MikroORM } from '@mikro-orm/core';
import { PostgreSqlDriver } from '@mikro-orm/postgresql';
import { freePorts } from './ports.js';
import { freezeAll, killAll, thawAll, withId } from './processes.js';
import { accountOf, postgresqlFolder, serverFolder } from './programs.js';

/** Debian: postgresql. */
export const hasPostgresql = postgresqlFolder !== undefined;

const program = (name: string) => `${postgresqlFolder ?? ''}${name}`;
const run = promisify(execFile);

/** Runs a statement on its own connection. */
export async function executeAt<Row>(clientUrl: string, sql: string): Promise<Row[]> {
  const orm = await MikroORM.init({
    driver: PostgreSqlDriver,
    clientUrl,
    entities: [],
    discovery: { warnWhenNoEntities: false },
  });
  try {
    return await orm.em.getDriver().getConnection().execute<Row[]>(sql);
  } finally {
    await orm.close(true);
  }
}

/** A server of its own, which can be frozen and killed. */
export class PostgresqlServer {
  #process: ChildProcess | undefined;

  private constructor(
    readonly name: string,
    readonly folder: string,
    readonly port: number,
  ) {}

  /**
   * A new server with this configuration, which is not started.
   *
   * @param more arguments of `initdb`.
   */
  static async create(
    name: string,
    folder: string,
    settings: Readonly<Record<string, string>>,
    more: readonly string[] = [],
  ): Promise<PostgresqlServer> {
    const [port = 0] = await freePorts(1);
    const server = new PostgresqlServer(name, path.join(folder, name), port);
    await run(
      program('initdb'),
      [
        ...['--pgdata', server.folder, '--username=postgres', '--auth=trust', '--encoding=UTF8', '--wal-segsize=1'],
        ...more,
      ],
      accountOf('postgres'),
    );
    const lines = Object.entries({
      listen_addresses: '127.0.0.1',
      unix_socket_directories: '',
      shared_buffers: '32MB',
      // An attempt that was given up leaves a process of the server that continues to wait.
      max_connections: '500',
      max_wal_size: '32MB',
      min_wal_size: '2MB',
      ...settings,
    }).map(([setting, value]) => `${setting} = '${value}'\n`);
    await appendFile(path.join(server.folder, 'postgresql.conf'), lines.join(''));
    return server;
  }

  /** A standby of a server, with the same configuration, which is not started. */
  static async standbyOf(primary: PostgresqlServer, name: string): Promise<PostgresqlServer> {
    const [port = 0] = await freePorts(1);
    const server = new PostgresqlServer(name, path.join(path.dirname(primary.folder), name), port);
    await run(
      program('pg_basebackup'),
      ['--pgdata', server.folder, '--write-recovery-conf', '--checkpoint=fast', `--dbname=${primary.url('postgres')}`],
      accountOf('postgres'),
    );
    return server;
  }

  url(database: string): string {
    return `postgresql://postgres@127.0.0.1:${this.port}/${database}`;
  }

  async start(): Promise<void> {
    // The primary knows a standby by the name of its cluster.
    const args = ['-D', this.folder, '-p', String(this.port), '-c', `cluster_name=${this.name}`];
    this.#process = spawn(program('postgres'), args, { stdio: 'ignore', ...accountOf('postgres') });
    await this.until('select 1 as fits');
  }

  /** Runs a statement without a proxy. */
  async execute<Row>(sql: string, database = 'postgres'): Promise<Row[]> {
    return executeAt<Row>(this.url(database), sql);
  }

  /** Waits until a statement returns a row. @param isOver whether to stop waiting. */
  async until(sql: string, isOver = () => false): Promise<void> {
    for (let tries = 1; !isOver(); tries++) {
      const rows = await this.execute(sql).catch(() => []);
      if (rows.length > 0) return;
      if (tries > 600 || !this.isRunning) throw new Error(`${this.name} does not come to: ${sql}`);
      await setTimeout(50);
    }
  }

  /** Makes a standby the primary. */
  async promote(): Promise<void> {
    await run(program('pg_ctl'), ['promote', '--wait', '--pgdata', this.folder], accountOf('postgres'));
  }

  get isRunning(): boolean {
    const server = this.#process;
    return server !== undefined && server.exitCode === null && server.signalCode === null;
  }

  /** Stops it, like an operator: it ends its connections, and waits until its standbys have everything. */
  async stop(): Promise<void> {
    await this.#end((server) => server.kill('SIGINT'));
  }

  /** Kills all of its processes at once, like a host that loses its power. */
  async kill(): Promise<void> {
    await this.#end((_, pid) => killAll(withId(pid)));
  }

  /** Freezes it, like a host that swaps: the connections stay, and nobody answers. */
  freeze(): void {
    if (this.#process?.pid !== undefined && this.isRunning) freezeAll(withId(this.#process.pid));
  }

  thaw(): void {
    if (this.#process?.pid !== undefined && this.isRunning) thawAll(withId(this.#process.pid));
  }

  async #end(end: (server: ChildProcess, pid: number) => unknown): Promise<void> {
    const server = this.#process;
    if (server?.pid === undefined || !this.isRunning) return;
    const exit = once(server, 'exit');
    await end(server, server.pid);
    await exit;
  }
}

/** A primary whose commits wait for a standby. */
export class PostgresqlPair {
  readonly #folder: string;
  #primary: PostgresqlServer;
  #standby: PostgresqlServer | undefined;
  #servers = 1;

  private constructor(folder: string, primary: PostgresqlServer) {
    this.#folder = folder;
    this.#primary = primary;
  }

  static async start(): Promise<PostgresqlPair> {
    const folder = await serverFolder('postgresql', 'postgres');
    const primary = await PostgresqlServer.create('server_1', folder, { synchronous_standby_names: 'server_2' });
    const pair = new PostgresqlPair(folder, primary);
    try {
      await primary.start();
      await pair.addStandby();
    } catch (error) {
      await pair.stop();
      throw error;
    }
    return pair;
  }

  get primary(): PostgresqlServer {
    return this.#primary;
  }

  get standby(): PostgresqlServer {
    if (!this.#standby) throw new Error('There is no standby');
    return this.#standby;
  }

  /** Adds a standby that commits wait for. Until it is there, they wait. */
  async addStandby(): Promise<void> {
    const standby = await PostgresqlServer.standbyOf(this.#primary, `server_${++this.#servers}`);
    this.#standby = standby;
    await standby.start();
    const name = `server_${this.#servers}`;
    await this.#primary.execute(`alter system set synchronous_standby_names = '${name}'`);
    await this.#primary.execute('select pg_reload_conf()');
    await this.#primary.until(
      `select 1 from pg_stat_replication where application_name = '${name}' and sync_state = 'sync'`,
    );
  }

  /** Makes the standby the primary. @returns the previous primary, which may still run. */
  async promote(): Promise<PostgresqlServer> {
    const before = this.#primary;
    await this.standby.promote();
    this.#primary = this.standby;
    this.#standby = undefined;
    return before;
  }

  async stop(): Promise<void> {
    await this.#primary.kill();
    await this.#standby?.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
