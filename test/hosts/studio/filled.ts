import { createEvent, type Event } from '@google/adk';
import { adkServices, type Lease, type SessionKey } from '../../../src/index.js';
import type { MikroORM } from '@mikro-orm/core';

/** A session of 2,005 events by three parallel workers. */
export const LONGEST = { appName: 'research', userId: 'grace', sessionId: 'handbook' };

const APPS = ['billing', 'research', 'shop', 'travel'];
const USERS = ['ada', 'bob', 'grace', 'linus', 'margaret', 'tim', 'barbara.liskov@example.com'];
const QUESTIONS = [
  'Where is order 17?',
  'Find me a train to Lisbon.',
  'Why was I charged twice?',
  'Summarize the report.',
];
const TOOLS = ['find_order', 'search_trains', 'read_invoice', 'fetch_page'];
const MODELS = ['gemini-x', 'gemini-x-lite'];
const HOUR_MS = 3_600_000;

type Parts = NonNullable<NonNullable<Event['content']>['parts']>;

const said = (author: string, parts: Parts, more: Partial<Event> = {}) =>
  createEvent({ author, content: { role: author === 'user' ? 'user' : 'model', parts }, ...more });

/**
 * Fills a database as some days of use do: 215 sessions of four apps, calls that wait, tools and models that failed, sessions that run,
 * a fork, and a session of 2,005 events.
 *
 * @returns a function that ends the leases.
 */
export async function fill(orm: MikroORM): Promise<() => Promise<void>> {
  const { sessionService, leases } = adkServices(orm.em);
  const now = Date.now();
  const create = async (key: SessionKey, events: Event[], title?: string) => {
    const session = await sessionService.createSession({
      ...key,
      state: { topic: 'help', 'user:language': 'English' },
    });
    for (let i = 0; i < events.length; i += 500)
      await sessionService.appendEvents({ session, events: events.slice(i, i + 500) });
    if (title !== undefined) await sessionService.describeSession(key, { title, labels: { tier: 'gold' } });
  };
  for (let i = 0; i < 214; i++) {
    const key = { appName: APPS[i % 4]!, userId: USERS[i % 7]!, sessionId: `session-${1_000 + i}` };
    const begin = now - (214 - i) * 1.2 * HOUR_MS - 60_000;
    await create(key, turn(i, begin), i % 3 === 0 ? QUESTIONS[i % 4] : undefined);
  }
  await create(LONGEST, translation(now - HOUR_MS), 'Translate the handbook');
  // They were stored as they happened: a model's event when it has answered.
  for (const [sessions, ms] of [
    ["like 'session-%'", OF_TURNS],
    ["= 'handbook'", OF_WORKERS],
  ])
    await orm.em
      .getConnection()
      .execute(`update adk_events set append_time = timestamp + ${ms} where session_id ${sessions}`);
  await sessionService.forkSession(LONGEST, { at: 15, as: 'handbook-again' });
  const held: Lease[] = [];
  for (const i of [211, 212, 213]) {
    const key = { appName: APPS[i % 4]!, userId: USERS[i % 7]!, sessionId: `session-${1_000 + i}` };
    held.push(await leases.acquire(key, { holder: `worker-${i % 3}.example:4711` }));
    const session = (await sessionService.getSession(key))!;
    const call = { id: `r${i}`, name: TOOLS[i % 4]!, args: { query: QUESTIONS[i % 4] } };
    await sessionService.appendEvents({
      session,
      events: [
        said('user', [{ text: QUESTIONS[i % 4] }]),
        ...(i === 211 ? [] : [said('clerk', [{ functionCall: call }])]),
      ],
    });
  }
  return async () => {
    for (const lease of held) await lease.release();
  };
}

/** How long models take, in ms, by the numbers of their events. */
const OF_TURNS = '(case seq when 2 then 1800 when 4 then 1500 else 0 end)';
const OF_WORKERS = '(case when seq > 1 and mod(seq - 2, 6) < 3 then 300 + 200 * mod(seq - 2, 6) else 0 end)';

/** A question, a tool, which may fail, and an answer, or a call that waits for a person. */
function turn(i: number, begin: number): Event[] {
  const at = (seconds: number) => ({ timestamp: begin + seconds * 1_000, invocationId: `turn-${i}` });
  const usageMetadata = {
    promptTokenCount: 900 + 37 * (i % 50),
    cachedContentTokenCount: i % 2 === 0 ? 512 : 0,
    candidatesTokenCount: 40 + (i % 30),
    thoughtsTokenCount: i % 5 === 0 ? 120 : 0,
  };
  const model = { usageMetadata, modelVersion: MODELS[i % 2]!, finishReason: 'STOP' as never };
  const tool = { id: `c${i}`, name: TOOLS[i % 4]! };
  const response = i % 9 === 0 ? { error: 'The server did not answer.' } : { found: `entry ${i}`, isWhole: true };
  const events = [
    said('user', [{ text: QUESTIONS[i % 4] }], at(0)),
    said('clerk', [{ text: 'I look it up.' }, { functionCall: { ...tool, args: { id: i } } }], { ...at(1), ...model }),
    said('clerk', [{ functionResponse: { ...tool, response } }], at(4)),
  ];
  if (i % 31 === 5) {
    const asked = { id: `a${i}`, name: 'delete_account', args: { user: USERS[i % 7], reason: 'asked by mail' } };
    const args = {
      originalFunctionCall: asked,
      toolConfirmation: { hint: 'This cannot be undone.', confirmed: false },
    };
    const id = `adk-${i}`;
    const content = [{ functionCall: { id, name: 'adk_request_confirmation', args } }];
    return [...events, said('clerk', content, { ...at(5), longRunningToolIds: [id] })];
  }
  if (i % 40 === 7) {
    const error = { errorCode: '429', errorMessage: 'You exceeded your quota.' };
    return [...events, createEvent({ author: 'clerk', ...at(6), ...error })];
  }
  const actions = { stateDelta: { lastOrder: i } } as Partial<Event['actions']>;
  const last = said('clerk', [{ text: `I found entry ${i}.` }], { ...at(6), ...model });
  Object.assign(last.actions, actions);
  return [...events, last];
}

/** Each of three workers translates a page in three seconds. */
function translation(begin: number): Event[] {
  const events = [said('user', [{ text: 'Translate the handbook.' }], { timestamp: begin })];
  for (let page = 0; page < 1_002; page += 3) {
    const pages = [page, page + 1, page + 2].map((i, worker) => {
      const of = { branch: `fan.worker_${worker}`, invocationId: 'translation' };
      const tool = { id: `t${i}`, name: 'translate_a_page' };
      const response = i % 90 === 8 ? { isError: true, message: 'The page is empty.' } : { page: i };
      const asked = begin + 1_000 * page;
      const usageMetadata = { promptTokenCount: 800, candidatesTokenCount: 12 };
      const used = { timestamp: asked, usageMetadata, modelVersion: MODELS[1]! };
      const answered = { timestamp: asked + 1_000 + 200 * worker };
      return [
        said(`worker_${worker}`, [{ functionCall: { ...tool, args: { page: i } } }], { ...of, ...used }),
        said(`worker_${worker}`, [{ functionResponse: { ...tool, response } }], { ...of, ...answered }),
      ] as const;
    });
    events.push(...pages.map(([call]) => call), ...pages.map(([, answer]) => answer));
  }
  return events;
}
