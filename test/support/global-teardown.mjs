import { servers } from './global-setup.mjs';
import { hasTestsOfCi } from './left-to-ci.js';

export default async function teardown() {
  await servers.stop();
  if (!hasTestsOfCi) {
    process.stderr.write(
      'Skipped: the tests that test/support/left-to-ci.js lists. CI runs them, and so does ADK_TEST_FULL=1.\n',
    );
  }
}
