/** Tests that rarely find anything for the time they take. They run before a merge, and `npm test` reports skipping them. */
const PATTERNS = [
  // They pack the package, and compile and start programs that use it.
  'hosts/package/',
  'hosts/docs/(dev-ui|terminal)',
  'hosts/schema/pipeline',
  // They compile all declarations, to test the checks of what is public.
  'hosts/house/(api|exports)',
  // They run the programs in examples/ as processes.
  'contract/runner/(demo|operate|recover)',
  // It judges ADK's own services.
  'contract/adk-services',
];

export const LEFT_TO_CI = PATTERNS.map((pattern) => `<rootDir>/test/${pattern}`);

/** Whether this run includes the tests that `npm test` leaves to CI. */
export const hasTestsOfCi = process.env['ADK_TEST_REQUIRE'] === 'all' || Boolean(process.env['ADK_TEST_FULL']);
