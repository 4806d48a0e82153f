import { createEvent, type BaseMemoryService, type Event, type Session } from '@google/adk';
import { all, same } from './checks.js';
import { range } from './events.js';
import type { CommonRule, Level } from './rule.js';

/** What a rule of memory is tested with. */
interface MemoryContext {
  service: BaseMemoryService;
  /** Another instance on the same store. */
  another: BaseMemoryService;
  /** An app that no other test uses. */
  app: string;
}

/** A rule of section Q of docs/contract.md, and one test that holds it. */
interface MemoryRule extends CommonRule {
  level: Exclude<Level, 'durable'>;
  /** @throws Error that says what was expected, and what was there. */
  test(this: void, context: MemoryContext): Promise<void>;
}

interface Owner {
  appName: string;
  userId?: string;
}

const said = (text: string, id: string, more: Partial<Event> = {}): Event =>
  createEvent({
    id,
    author: 'user',
    timestamp: 1_700_000_000_000,
    content: { role: 'user', parts: [{ text }] },
    ...more,
  });

const sessionOf = ({ appName, userId = 'alice' }: Owner, events: Event[], id = 's'): Session => ({
  ...{ id, appName, userId, events },
  state: {},
  lastUpdateTime: 1_700_000_000_000,
});

/** Remembers texts of one session. */
const remember = (service: BaseMemoryService, owner: Owner, texts: readonly string[], id?: string) =>
  service.addSessionToMemory(
    sessionOf(
      owner,
      texts.map((text, i) => said(text, `${id ?? 's'}${i}`)),
      id,
    ),
  );

async function search(service: BaseMemoryService, { appName, userId = 'alice' }: Owner, query: string) {
  const { memories } = await service.searchMemory({ appName, userId, query });
  return memories.map(({ content }) => content.parts?.map(({ text }) => text ?? '').join(' '));
}

/** Whether words find the one memory that they are of, and nothing else. */
async function finds(service: BaseMemoryService, owner: Owner, questions: Readonly<Record<string, string>>) {
  const results: Record<string, unknown> = {};
  for (const question of Object.keys(questions)) results[question] = await search(service, owner, question);
  same(results, Object.fromEntries(Object.entries(questions).map(([word, text]) => [word, [text]])), 'What is found');
}

/** Texts, each with a word of it as somebody may ask for it. */
async function findsAll({ service, another, app }: MemoryContext, texts: Readonly<Record<string, string>>) {
  await remember(service, { appName: app }, [...Object.values(texts), 'xyzzy']);
  await finds(another, { appName: app }, texts);
}

const WITH_BLANKS = {
  Алексей: 'Меня зовут Алексей',
  Πειραιά: 'Ζω στον Πειραιά',
  ירושלים: 'אני גר בירושלים ואוהב את ירושלים',
  القهوة: 'أحب القهوة في الصباح',
  हिन्दी: 'मैं हिन्दी बोलता हूँ',
  Երևան: 'Ես ապրում եմ Երևան քաղաքում',
  თბილისი: 'ჩემი ქალაქი თბილისი არის',
  தமிழ்: 'எனக்கு தமிழ் தெரியும்',
  አማርኛ: 'እኔ አማርኛ እናገራለሁ',
  łódź: 'Mieszkam w mieście Łódź',
};

const WITHOUT_BLANKS = {
  太郎: '私の名前は太郎です',
  北京烤鸭: '我最喜欢吃北京烤鸭',
  민수: '제 이름은 민수입니다',
  ข้าว: 'ฉันกินข้าวทุกวัน',
  ភាសាខ្មែរ: 'ខ្ញុំចេះភាសាខ្មែរ',
};

/** Tests of section Q: memory. */
export const MEMORY_RULES: readonly MemoryRule[] = [
  {
    rule: 'Q1',
    title: 'a search gives content, author and the time in ISO 8601',
    level: 'every',
    async test({ service, another, app }) {
      const event = said('I live in Graz', 'e', { author: 'alice', timestamp: 1_700_000_000_123 });
      await service.addSessionToMemory(sessionOf({ appName: app }, [event]));
      const { memories } = await another.searchMemory({ appName: app, userId: 'alice', query: 'graz' });
      same(
        memories.map(({ content, author, timestamp }) => ({ content, author, timestamp })),
        [
          {
            content: { role: 'user', parts: [{ text: 'I live in Graz' }] },
            author: 'alice',
            timestamp: '2023-11-14T22:13:20.123Z',
          },
        ],
        'What is found',
      );
    },
  },
  {
    rule: 'Q2',
    title: 'a session that is added again, and has grown, is remembered once',
    level: 'every',
    async test({ service, another, app }) {
      const owner = { appName: app };
      const events = ['one fish', 'two fish'].map((text, i) => said(text, `e${i}`));
      await service.addSessionToMemory(sessionOf(owner, events.slice(0, 1)));
      await another.addSessionToMemory(sessionOf(owner, events));
      await all(range(4).map((n) => (n % 2 ? another : service).addSessionToMemory(sessionOf(owner, events))));
      same((await search(another, owner, 'fish')).sort(), ['one fish', 'two fish'], 'What is found');
    },
  },
  {
    rule: 'Q2',
    title: 'a session that was read with its newest events alone removes none of the older',
    level: 'every',
    async test({ service, another, app }) {
      const owner = { appName: app };
      const events = ['one fish', 'two fish', 'three fish'].map((text, i) => said(text, `e${i}`));
      await service.addSessionToMemory(sessionOf(owner, events));
      await another.addSessionToMemory(sessionOf(owner, events.slice(-1)));
      same((await search(service, owner, 'fish')).sort(), ['one fish', 'three fish', 'two fish'], 'What is found');
    },
  },
  {
    rule: 'Q2',
    title: 'what the caller does to an event later does not reach memory',
    level: 'every',
    async test({ service, another, app }) {
      const owner = { appName: app };
      const event = said('a blue fish', 'e');
      await service.addSessionToMemory(sessionOf(owner, [event]));
      Object.assign(event, said('a red dog', 'e'));
      same(await search(another, owner, 'fish'), ['a blue fish'], 'What is found');
      same(await search(another, owner, 'dog'), [], 'What is found of the change');
    },
  },
  {
    rule: 'Q3',
    title: 'what is added is found by another instance as soon as the call has ended',
    level: 'shared',
    async test({ service, another, app }) {
      for (const word of ['apple', 'berry', 'cherry', 'damson', 'elder']) {
        await remember(service, { appName: app }, [`an ${word}`], word);
        same(await search(another, { appName: app }, word), [`an ${word}`], `What is found of ${word}`);
      }
    },
  },
  {
    rule: 'Q4',
    title: 'the best match comes first: more words of the question, and rarer ones',
    level: 'every',
    async test({ service, another, app }) {
      const owner = { appName: app };
      await remember(service, owner, [
        ...range(5).map((n) => `the cat number ${n} sleeps`),
        'the dog eats peanuts today',
        'the cat eats peanuts today',
      ]);
      same((await search(another, owner, 'cat peanuts'))[0], 'the cat eats peanuts today', 'The first of two words');
      same((await search(another, owner, 'the dog'))[0], 'the dog eats peanuts today', 'The first of a rare word');
    },
  },
  {
    rule: 'Q5',
    title: 'numbers, case and punctuation do not hide a word',
    level: 'every',
    test: (context) =>
      findsAll(context, { 'Paris?': 'We fly to Paris, she said', '42': 'My number is 42', GRAZ: 'I live in "Graz".' }),
  },
  {
    rule: 'Q5',
    title: 'marks on Latin letters do not count, whichever way they are written',
    level: 'every',
    test: (context) =>
      findsAll(context, { zurich: 'I work in Zürich', 'cafe\u0301': 'The café is closed', naïve: 'He is nai\u0308ve' }),
  },
  {
    rule: 'Q5',
    title: 'words of scripts with blanks are found',
    level: 'every',
    test: (context) => findsAll(context, WITH_BLANKS),
  },
  {
    rule: 'Q5',
    title: 'so are words of scripts without blanks, inside of a sentence',
    level: 'every',
    test: (context) => findsAll(context, WITHOUT_BLANKS),
  },
  {
    rule: 'Q6',
    title: 'nothing of another user or another app is found, whatever their ids hold',
    level: 'every',
    async test({ service, another, app }) {
      const owners: Owner[] = [
        { appName: app, userId: 'x/y' },
        { appName: `${app}/x`, userId: 'y' },
        { appName: app, userId: 'x' },
        { appName: app, userId: 'X' },
        { appName: app, userId: 'x ' },
        { appName: app, userId: '__proto__' },
        { appName: `${app}2`, userId: 'x' },
      ];
      for (const [n, owner] of owners.entries()) await remember(service, owner, [`fish ${n}`]);
      for (const [n, owner] of owners.entries())
        same(await search(another, owner, 'fish'), [`fish ${n}`], `What is found for ${JSON.stringify(owner)}`);
    },
  },
  {
    rule: 'Q8',
    title: 'a question without a word, or without one that was said, finds nothing',
    level: 'every',
    async test({ service, another, app }) {
      await remember(service, { appName: app }, ['a fish?', 'a dog!']);
      for (const query of ['', ' ', '?!', '\u{1f600}', 'whale'])
        same(await search(another, { appName: app }, query), [], `What ${JSON.stringify(query)} finds`);
      same(await search(another, { appName: app, userId: 'nobody' }, 'fish'), [], 'What is found for a new user');
    },
  },
  {
    rule: 'Q13',
    title: 'calls, responses, thoughts and partial events are not remembered',
    level: 'every',
    async test({ service, another, app }) {
      const parts = [
        { text: 'fish as a thought', thought: true },
        { functionCall: { name: 'fish', args: { fish: 'fish' } } },
        { functionResponse: { name: 'fish', response: { fish: 'fish' } } },
      ];
      const events = [
        ...parts.map((part, i) =>
          createEvent({ id: `e${i}`, author: 'agent', content: { role: 'model', parts: [part] } }),
        ),
        said('a partial fish', 'p', { partial: true }),
        said('a fish', 'f'),
      ];
      await service.addSessionToMemory(sessionOf({ appName: app }, events));
      same(await search(another, { appName: app }, 'fish'), ['a fish'], 'What is found');
    },
  },
];
