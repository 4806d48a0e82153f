import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { MysqlServer, hasMysql, mysqlPlugins } from './mysql.js';
import { freePorts } from './ports.js';
import { serverFolder } from './programs.js';
import { until } from './until.js';

export const hasGroupReplication = hasMysql && existsSync(path.join(mysqlPlugins, 'group_replication.so'));

const NODES = 3;

/** Clients use an account that has no right to stay on a node that has left the group and takes no more clients. */
const ACCOUNT = 'app';

/** `BEFORE`: a transaction waits for all that were acknowledged before it began. */
export type Consistency = 'EVENTUAL' | 'BEFORE_ON_PRIMARY_FAILOVER' | 'BEFORE' | 'AFTER' | 'BEFORE_AND_AFTER';

export interface GroupOptions {
  consistency: Consistency;
  /** Whether only one node takes writes, and another one takes over if it is lost. */
  singlePrimary?: boolean;
  /** Settings of each node. */
  settings?: readonly string[];
}

/** A server of a group. */
export class GroupNode {
  constructor(readonly server: MysqlServer) {}

  url(database: string): string {
    return this.server.url(database, ACCOUNT);
  }

  /** Joins the group, and accepts clients when it has everything that the others have. */
  async join(): Promise<void> {
    await this.server.execute('start group_replication');
    await this.server.until(
      `select 1 from performance_schema.replication_group_members
       where member_id = @@server_uuid and member_state = 'ONLINE'`,
    );
    await this.server.execute('set global offline_mode = off');
  }

  /** Waits until a commit waits for the group. */
  async untilCommitsWait(): Promise<void> {
    await this.server.until(
      "select 1 from performance_schema.processlist where state = 'waiting for handler commit' and time >= 1",
    );
  }

  /** Waits until it knows that it has left the group. */
  async untilOut(): Promise<void> {
    await this.server.until('select 1 as fits from dual where @@global.offline_mode');
  }

  /** Joins the group again, if it knows that the others continued without it. */
  async rejoinIfOut(): Promise<void> {
    const [state] = await this.server.execute<{ isOut: number }>(
      `select count(*) as isOut from performance_schema.replication_group_members
       where member_id = @@server_uuid and member_state in ('ERROR', 'OFFLINE')`,
    );
    if (!Number(state?.isOut)) return;
    await this.server.execute('stop group_replication');
    await this.join();
  }

  /** Whether it is the group's single primary and takes writes. */
  async isPrimary(): Promise<boolean> {
    const found = await this.server.execute(
      `select 1 from performance_schema.replication_group_members where member_id = @@server_uuid
       and member_state = 'ONLINE' and member_role = 'PRIMARY' and not @@super_read_only`,
    );
    return found.length > 0;
  }

  /** Makes it the single primary, once the transactions of the old one have ended. */
  async becomePrimary(): Promise<void> {
    await this.server.execute('select group_replication_set_as_primary(@@server_uuid)');
  }

  async seesOnline(members: number): Promise<boolean> {
    const [online] = await this.server.execute<{ members: number }>(
      "select count(*) as members from performance_schema.replication_group_members where member_state = 'ONLINE'",
    );
    return Number(online?.members) === members;
  }

  /** Waits until it sees this many members. */
  async untilOf(members: number): Promise<void> {
    await this.server.until(
      `select 1 from performance_schema.replication_group_members
       where member_state = 'ONLINE' having count(*) = ${members}`,
    );
  }
}

/** Three servers of MySQL with group replication. */
export class GroupReplication {
  readonly #folder: string;

  private constructor(
    readonly nodes: readonly [GroupNode, GroupNode, GroupNode],
    folder: string,
  ) {
    this.#folder = folder;
  }

  static async start(options: GroupOptions): Promise<GroupReplication> {
    const folder = await serverFolder('group', 'mysql');
    const ports = await freePorts(NODES);
    const seeds = ports.map((port) => `127.0.0.1:${port}`).join();
    const start = async (i: number) =>
      new GroupNode(
        await MysqlServer.mysql(path.join(folder, `node_${i}`), [
          ...settingsOf(options),
          `--server-id=${i + 1}`,
          `--group-replication-local-address=127.0.0.1:${ports[i]}`,
          `--group-replication-group-seeds=${seeds}`,
        ]),
      );
    const group = new GroupReplication([await start(0), await start(1), await start(2)], folder);
    try {
      for (const [i, node] of group.nodes.entries()) {
        await node.server.start();
        await node.server.execute(
          "change replication source to source_user = 'root' for channel 'group_replication_recovery'",
        );
        if (i === 0) await node.server.execute('set global group_replication_bootstrap_group = on');
        await node.join();
      }
      const [{ server }] = group.nodes;
      await server.execute('set global group_replication_bootstrap_group = off');
      await server.execute(`create user ${ACCOUNT}`);
    } catch (error) {
      await group.stop();
      throw error;
    }
    return group;
  }

  /** With a single primary: waits until one of these nodes is the primary and takes writes. */
  async primaryAmong(nodes: readonly GroupNode[]): Promise<GroupNode> {
    return until('a primary', async () => {
      for (const node of nodes) if (await node.isPrimary().catch(() => false)) return node;
      return undefined;
    });
  }

  async createDatabase(name: string): Promise<void> {
    const [{ server }] = this.nodes;
    await server.execute(`create database ${name}`);
    await server.execute(`grant all on ${name}.* to ${ACCOUNT}`);
  }

  /** Waits until all nodes see each other. Nodes that have left join again. */
  async untilWhole(): Promise<void> {
    for (let tries = 1; ; tries++) {
      for (const node of this.nodes) await node.rejoinIfOut();
      const whole = await Promise.all(this.nodes.map((node) => node.seesOnline(NODES)));
      if (whole.every(Boolean)) return;
      if (tries > 300) throw new Error(`The group in ${this.#folder} does not come together`);
      await setTimeout(200);
    }
  }

  async stop(): Promise<void> {
    for (const { server } of this.nodes) server.thaw();
    await Promise.all(this.nodes.map(({ server }) => server.kill()));
    await rm(this.#folder, { recursive: true, force: true });
  }
}

const settingsOf = ({ consistency, singlePrimary = false, settings = [] }: GroupOptions): string[] => [
  '--gtid-mode=ON',
  '--enforce-gtid-consistency=ON',
  '--report-host=127.0.0.1',
  // Until it is a member, it would show its old data and take writes of its own.
  '--offline-mode=ON',
  '--plugin-load-add=group_replication.so',
  '--group-replication-group-name=6f0f7c3e-0d0c-4d5b-8a5e-1f6b1c2d3e4f',
  '--group-replication-start-on-boot=OFF',
  // A node that has left the group accepts no clients. By default it first tries for minutes to come back.
  '--group-replication-exit-state-action=OFFLINE_MODE',
  '--group-replication-autorejoin-tries=0',
  '--group-replication-recovery-get-public-key=ON',
  // A node that is silent for 5 s is expelled. The default is 5 s later.
  '--group-replication-member-expel-timeout=0',
  // A node that cannot reach the majority rolls back transactions that wait for it. By default they wait forever.
  '--group-replication-unreachable-majority-timeout=5',
  // The smallest: by default it may grow to 1 GB.
  '--group-replication-message-cache-size=134217728',
  `--group-replication-single-primary-mode=${singlePrimary ? 'ON' : 'OFF'}`,
  `--group-replication-consistency=${consistency}`,
  ...settings,
];
