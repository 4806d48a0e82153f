import { servers } from './global-setup.mjs';

export default async function teardown() {
  await servers.stop();
}
