import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { freePorts } from './ports.js';
import { Unpacked, accountOf } from './programs.js';
import { listens } from './until.js';

const unpacked = new Unpacked('pgbouncer', 'usr/sbin/pgbouncer');

export const hasPgBouncer = unpacked.isThere;

/** Fewer than the writers use, so that they share them. */
export const POOL_SIZE = 4;

/** How PgBouncer treats the prepared statements of a connection to the server. */
export interface PgBouncerSettings {
  /** How many PgBouncer keeps track of. With 0, a client finds the statements of the connection's previous client. */
  max_prepared_statements: number;
  /** Whether the connection forgets them after each transaction. */
  server_reset_query_always: 0 | 1;
}

/** PgBouncer in transaction mode, before a server. */
export class PgBouncer {
  readonly #target: URL;
  readonly #folder: string;
  readonly #port: number;
  #process: ChildProcess | undefined;

  private constructor(target: URL, folder: string, port: number) {
    this.#target = target;
    this.#folder = folder;
    this.#port = port;
  }

  static async before(url: string, settings: PgBouncerSettings): Promise<PgBouncer> {
    const target = new URL(url);
    const folder = await mkdtemp(path.join(tmpdir(), 'adk-pgbouncer-'));
    await chmod(folder, 0o755);
    const [port = 0] = await freePorts(1);
    const { hostname, port: targetPort, username, password } = target;
    const server = `host=${hostname} port=${targetPort} user=${username}${password && ` password=${password}`}`;
    await writeFile(
      path.join(folder, 'pgbouncer.ini'),
      `[databases]
* = ${server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = ${POOL_SIZE}
max_client_conn = 500
server_reset_query = DISCARD ALL
${Object.entries(settings)
  .map(([name, value]) => `${name} = ${value}`)
  .join('\n')}
`,
    );
    const pooler = new PgBouncer(target, folder, port);
    await pooler.start();
    return pooler;
  }

  /** The database's URL through it. */
  get url(): string {
    const url = new URL(this.#target);
    url.hostname = '127.0.0.1';
    url.port = String(this.#port);
    return url.href;
  }

  async start(): Promise<void> {
    const file = path.join(this.#folder, 'pgbouncer.ini');
    const [program, ...args] = unpacked.command();
    this.#process = spawn(program, [...args, '--quiet', file], { stdio: 'ignore', ...accountOf('nobody') });
    for (let tries = 1; !(await listens(this.#port)); tries++) {
      if (tries > 300 || this.#process.exitCode !== null) throw new Error(`PgBouncer does not start with ${file}`);
      await setTimeout(20);
    }
  }

  /** Kills it, so that it cannot finish anything. */
  async kill(): Promise<void> {
    const pooler = this.#process;
    if (!pooler || pooler.exitCode !== null || pooler.signalCode !== null) return;
    const exit = once(pooler, 'exit');
    pooler.kill('SIGKILL');
    await exit;
  }

  async stop(): Promise<void> {
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
