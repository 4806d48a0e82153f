import { citusLayout } from '../support/harnesses/on-server.js';
import { table } from './tables.js';

/** What does not hold on Citus. Its tests are expected to fail there, and docs/scale.md has the rest as a table. */
interface Deviation {
  rule: string;
  /** What happens instead; `holds` if nothing else does. */
  user: string;
  schema: string;
  why: string;
  /** The names of the tests that fail: by user, and by schema unless `schema` begins with `holds`. */
  tests: readonly string[];
}

export const DEVIATIONS: readonly Deviation[] = [
  {
    rule: 'B3, O6: an append waits for no key of `app:` state that it does not write',
    user: 'appends that write `app:` keys wait for each other, whatever the keys',
    schema: 'holds',
    why: 'a table on every node takes one writer at a time',
    tests: ['B3 an append waits for no app or user row that its delta does not touch'],
  },
  {
    rule: 'E9: appends to several sessions are one statement',
    user: 'they are a transaction of several, for 8 sessions at most, whose users are on one node',
    schema: 'holds',
    why: 'a statement that writes rows of several users is a two-phase commit, and keeps them locked until each node has prepared its part',
    tests: [
      'E9 an event that is stored already does not affect new ones',
      'E9 appends that wait for a connection are one statement, and a lone one is sent as usual',
    ],
  },
  {
    rule: 'O1: the answer of a statement for several sessions is lost',
    user: 'several statements share a transaction: the test loses the answer of the first, which has stored nothing',
    schema: 'the same',
    why: 'Citus refuses parts of a `with` that insert',
    tests: ['O1 a lost answer of a statement of many leaves each stored once, or its outcome unknown'],
  },
  {
    rule: "E4: the server's `lock_timeout` ends the wait for a lock",
    user: "it does not; the service's `timeoutMs` does",
    schema: 'the same',
    why: 'Citus does not send the setting to the nodes',
    tests: ['E4 a lock time-out is retried'],
  },
  {
    rule: 'O7: `standard_conforming_strings = off` changes nothing',
    user: 'the connection is refused',
    schema: 'the same',
    why: 'Citus writes texts into the statements for nodes, and would double their backslashes',
    tests: ['O7 no text, hostile or random, becomes SQL, and everything works, with standard_conforming_strings = off'],
  },
  {
    rule: 'A12, M2, P15: damage done by hand',
    user: 'cannot be tested',
    schema: 'holds',
    why: "Citus refuses the tests' own statements: a unique index without `user_id`, an `update` from the row of another user",
    tests: [
      'A12 the error of a violated constraint shows neither SQL nor values',
      'M2 a row that was moved, swapped or changed is damage',
      'M2 a value of the state that was moved is damage',
      'P15 rows cannot be exchanged between names, versions, users and parts',
    ],
  },
  {
    rule: 'A12: calls run under a policy of row-level security that reads a setting',
    user: 'the node refuses the rows',
    schema: 'the same',
    why: 'Citus does not send the settings of a transaction to the nodes',
    tests: ['A12 with settings every service and the Runner run under a policy of row-level security'],
  },
  {
    rule: 'F6, K6: reads are served by an index',
    user: 'the tests fail',
    schema: 'holds',
    why:
      '`explain` shows one shard, and PostgreSQL reads a table of few rows from end to end. With 100,000 sessions each shard finds ' +
      'its page of `findSessions`, and the sessions that are watched, by an index',
    tests: [
      'F6 every read is served by an index',
      'F6 every read of lists, pasts, transfers and the complete log is served by an index',
      'F6 every read of maintenance is served by an index',
      'K6 a page is one statement, and a search of an app two at most, served by an index',
    ],
  },
  {
    rule: 'G2: the log is served by an index',
    user: 'the test fails',
    schema: 'the same',
    why: 'as for F6',
    tests: ['G2 every read of the log is served by an index'],
  },
];

/** The names of the tests that are expected to fail on a database. */
export function expectedFailures(harness: string): ReadonlySet<string> {
  const layout = citusLayout(harness);
  const failing = DEVIATIONS.filter(({ schema }) => layout === 'user' || (layout === 'schema' && schema !== 'holds'));
  return new Set(failing.flatMap(({ tests }) => tests));
}

/** For docs/scale.md. */
export function deviationsOnCitus(): string {
  const header = ['Rule of the [contract](contract.md) that does not hold', 'by user', 'by schema', 'Why'];
  return table([
    header,
    header.map(() => '---'),
    ...DEVIATIONS.map((each) => [each.rule, each.user, each.schema, each.why]),
  ]);
}
