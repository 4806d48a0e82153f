import { servers } from './global-setup.mjs';
import { leftOut } from './selection.js';

export default async function teardown() {
  await servers.stop();
  if (leftOut) process.stderr.write(`Left out: ${leftOut}\n`);
}
