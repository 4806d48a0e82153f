import { servers } from './global-setup.mjs';
import { isComplete } from './left-to-ci.js';

export default async function teardown() {
  await servers.stop();
  if (!isComplete) {
    process.stderr.write(
      'Skipped, and left to CI: the tests that test/support/left-to-ci.js lists. ADK_TEST_FULL=1 runs them, too.\n',
    );
  }
}
