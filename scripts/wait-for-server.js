// Waits until the MySQL or MariaDB server at the URL answers a query. Fails after a minute.
import { setTimeout } from 'node:timers/promises';
import { MikroORM } from '@mikro-orm/core';
import { MySqlDriver } from '@mikro-orm/mysql';

const url = new URL(process.argv[2] ?? '');
const server = url.host;
url.pathname = 'information_schema';
url.protocol = 'mysql:';

async function failure() {
  const orm = await MikroORM.init({
    driver: MySqlDriver,
    clientUrl: url.href,
    entities: [],
    discovery: { warnWhenNoEntities: false },
    connect: false,
  });
  try {
    const check = await orm.checkConnection();
    return check.ok ? undefined : check.reason;
  } finally {
    await orm.close(true);
  }
}

const deadline = Date.now() + 60_000;
let reason = await failure();
while (reason && Date.now() < deadline) {
  await setTimeout(250);
  reason = await failure();
}
if (reason) {
  console.error(`No answer from ${server}: ${reason}`);
  process.exitCode = 1;
}
