import { createEvent } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import type { BrowserContextOptions, Locator, Page } from 'playwright-core';
import { adkEntities, adkServices, MikroOrmSessionService } from '../../../src/index.js';
import { accessibilityProblems, describeInChromium } from '../../support/chromium.js';
import { Recent } from '../../../packages/studio/src/recent.js';
import { KEY, png, tellStory } from './conversation.js';
import { LONGEST, fill } from './filled.js';
import { Served, query, type Site } from './served.js';

const OF_STORY = { app: KEY.appName, user: KEY.userId, session: KEY.sessionId };
const STORY = query('/session', OF_STORY);
/** Parallel agents, a large picture, Markdown of all kinds, and long names. */
const WIDE = { ...KEY, sessionId: 'wide' };
const OF_WIDE = { ...OF_STORY, session: WIDE.sessionId };
const OF_LONGEST = { app: LONGEST.appName, user: LONGEST.userId, session: LONGEST.sessionId };
const PAGES = [
  '/',
  '/sessions?app=research',
  '/sessions?order=size',
  '/sessions?find=session-10',
  '/?all=failed',
  '/?all=runs',
  '/sessions?app=research&order=size',
  query('/session', OF_LONGEST),
  query('/session', { ...OF_LONGEST, branch: 'fan.worker_1' }),
  query('/time', OF_LONGEST),
  '/sessions?app=support',
  '/sessions?app=support&find=nothing',
  '/sessions?app=support&q=lamp&order=tokens',
  '/users?app=support',
  STORY,
  `${STORY}&at=4`,
  query('/session', OF_WIDE),
  query('/time', OF_STORY),
  query('/time', OF_WIDE),
  query('/state', OF_STORY),
  query('/state', { ...OF_STORY, key: 'order' }),
  query('/state', { ...OF_WIDE, at: 3 }),
  query('/files', OF_WIDE),
  '/waiting?app=support',
  query('/event', { ...OF_STORY, seq: 2 }),
  query('/rewind', OF_STORY),
  query('/describe', OF_STORY),
  query('/fork', OF_STORY),
  query('/delete', OF_STORY),
  query('/answer', { ...OF_STORY, at: 8, call: 'call-3' }),
  query('/repair', OF_STORY),
  query('/files', OF_STORY),
  query('/files', { ...OF_STORY, file: 'report.pdf' }),
  '/memory?app=support',
  query('/memory', OF_STORY),
  query('/memory', { ...OF_STORY, q: 'lamp' }),
  query('/forget', OF_STORY),
  '/usage',
  '/usage?by=app',
  '/usage?by=user&app=support',
  '/usage?by=day',
  '/operations',
  '/operations/stats',
  '/operations/doctor',
  '/nothing',
];

/** Two of them had the same color. */
const WORKERS = ['worker_fr', 'worker_pl', 'worker_ar'];

const MARKDOWN = [
  '- [x] read https://www.example.com/docs',
  '- [ ] measured',
  '',
  'See README.md.',
  '',
  '```',
  `select ${'a_column, '.repeat(30)}`,
  '```',
  '',
  '| engine | answer |',
  '| --- | --- |',
  `| SQLite | ${'a long text '.repeat(9)} |`,
  '',
  'In Arabic:',
  '',
  '- مرحبا',
].join('\n');

describeInChromium('the studio in Chromium', (browser) => {
  let served: Served;
  let site: Site;
  let release: () => Promise<void>;
  beforeAll(async () => {
    served = await Served.open('sqlite');
    site = await served.studio({ allowChanges: true, prices: { 'gemini-x': { input: 1, output: 10 } } });
    await tellStory(served.service);
    const { artifactService, memoryService } = adkServices(served.orm.em);
    const artifact = { inlineData: { data: 'QQ==', mimeType: 'application/pdf' } };
    await artifactService.saveArtifact({ ...KEY, filename: 'report.pdf', artifact });
    await artifactService.saveArtifact({
      ...{ ...WIDE, filename: 'large.png' },
      artifact: { inlineData: { data: png(1_400, 900), mimeType: 'image/png' } },
    });
    const long = `${'a-long-name-'.repeat(12)}.docx`;
    const mimeType = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document';
    await artifactService.saveArtifact({
      ...WIDE,
      filename: long,
      artifact: { inlineData: { data: 'QQ==', mimeType } },
    });
    release = await fill(served.orm);
    const session = await served.service.createSession(WIDE);
    const said = [
      ...WORKERS.flatMap((author) => [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map(() => ({ author, text: 'Worked.' }))),
      { author: 'writer', text: MARKDOWN },
    ];
    const events = said.map(({ author, text }) =>
      createEvent({ author, branch: `fan.${author}`, content: { role: 'model', parts: [{ text }] } }),
    );
    await served.service.appendEvents({ session, events });
    const content = { parts: [{ text: 'Ada has a desk lamp, and likes it.' }] };
    await memoryService.addMemory({ ...KEY, memories: [{ content }] });
    await memoryService.addMemory({ appName: KEY.appName, memories: [{ content }] });
  });
  afterAll(async () => {
    await release();
    await served.close();
  });

  /** Opens a page, and fails if the browser refuses anything. */
  async function visit<T>(options: BrowserContextOptions, work: (page: Page) => Promise<T>): Promise<T> {
    const context = await browser().newContext({ viewport: { width: 1280, height: 860 }, ...options });
    const refused: string[] = [];
    try {
      const page = await context.newPage();
      page.on('console', (message) => {
        if (message.text().includes('Content Security Policy')) refused.push(message.text());
      });
      page.on('pageerror', (error) => refused.push(String(error)));
      const result = await work(page);
      expect(refused).toEqual([]);
      return result;
    } finally {
      await context.close();
    }
  }

  /** Opens a page, and waits until everything is counted: the page replaces what it shows until then. */
  async function open(page: Page, path = '/'): Promise<void> {
    await page.goto(site.origin + path);
    await page.locator('#now[data-refresh="1"]').waitFor({ state: 'detached' });
  }

  /** Opens the first page with a clock that the test moves. Without a network, the page cannot load itself again. */
  async function openWithClock(page: Page): Promise<void> {
    await page.clock.install();
    await open(page);
    await page.context().setOffline(true);
  }

  const phone = { viewport: { width: 390, height: 844 } };
  test.each<{ how: string; options: BrowserContextOptions }>([
    { how: 'wide', options: {} },
    { how: 'on a phone', options: phone },
    { how: 'in the dark', options: { colorScheme: 'dark' } },
  ])('every page meets WCAG AA and fits, $how', async ({ options }) => {
    await visit({ ...options, reducedMotion: 'reduce' }, async (page) => {
      for (const path of PAGES) {
        await open(page, path);
        for (const fold of await page.locator('details.fold').all())
          await fold.evaluate((each: { open: boolean }) => void (each.open = true));
        // What is not laid out seems to lie over what follows.
        for (const event of await page.locator('.event').all())
          await event.evaluate(
            (each: { style: object }) => void Object.assign(each.style, { contentVisibility: 'visible' }),
          );
        // Links that the bar happens to cover in part would seem small.
        await page.evaluate('scrollTo(0, 0)');
        expect([path, await accessibilityProblems(page)]).toEqual([path, []]);
        const width = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
        expect([path, width]).toEqual([path, 0]);
      }
    });
  });

  test.each([390, 720, 1_024, 1_440])('no page scrolls sideways at %i px', async (width) => {
    await visit({ viewport: { width, height: 900 } }, async (page) => {
      for (const path of PAGES) {
        await open(page, path);
        const over = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
        expect([path, over]).toEqual([path, 0]);
      }
    });
  });

  test('files have small pictures, and their types are not broken into letters', async () => {
    await visit({ viewport: { width: 1_440, height: 900 } }, async (page) => {
      await page.goto(site.origin + query('/files', OF_WIDE));
      expect((await page.locator('.list img').boundingBox())?.width).toBe(40);
      expect((await page.getByText('image/png').boundingBox())?.width).toBeGreaterThan(100);
    });
  });

  test('on a phone each value of a table has the name of its column, and buttons are whole', async () => {
    await visit(phone, async (page) => {
      const labels = (path: string) =>
        open(page, path).then(() =>
          page.evaluate<string[]>(
            '[...document.querySelector(".list tbody tr").querySelectorAll("td")].map((each) => getComputedStyle(each, "::before").content)',
          ),
        );
      expect(await labels(query('/files', OF_WIDE))).toEqual(
        ['Type', 'Size', 'Saved', 'Versions'].map((name) => `"${name} "`),
      );
      expect(await labels('/waiting?app=support')).toEqual(['"Waits "', 'none']);
      const button = await page.getByRole('link', { name: 'Answer' }).boundingBox();
      expect(button?.height).toBeLessThan(40);
    });
  });

  test('the tables of the first page break no word, and its numbers are lines', async () => {
    await visit({ viewport: { width: 1_440, height: 900 } }, async (page) => {
      await open(page);
      const links = page.locator('#apps tbody').getByRole('link');
      // All at once: the page may be loaded again between two of them.
      const heights = await links
        .filter({ hasText: /^(Waiting|Users|support)$/ })
        .evaluateAll((all) =>
          all.map((each: { getBoundingClientRect(): { height: number } }) => each.getBoundingClientRect().height),
        );
      expect(heights.length).toBeGreaterThan(2);
      expect(Math.max(...heights)).toBeLessThan(30);
    });
  });

  test('what charts say can be read at 390 px', async () => {
    await visit(phone, async (page) => {
      await open(page, '/usage');
      for (const text of await page.locator('.chart text').all())
        expect((await text.boundingBox())?.height).toBeGreaterThan(9);
    });
  });

  const session = (name: string) => (page: Page) => page.getByRole('link', { name, exact: true }).first();
  const link = (name: string) => (page: Page) => page.getByRole('link', { name, exact: true });
  test.each<{ question: string; clicks: ((page: Page) => Locator)[]; answer: string[] }>([
    {
      question: 'What is this agent doing now?',
      clicks: [],
      answer: ['#runs tr:has-text("billing / grace") :text("find_order")', '#runs :text("worker-2.example:4711")'],
    },
    {
      question: 'Why did it answer so?',
      clicks: [(page) => page.locator('#failed').getByRole('link', { name: 'read_invoice' }).first()],
      answer: [
        '.current :text("I look it up.")',
        '.current .why[open] div:has(> dt:has-text("Question")) a',
        '.current .why[open] div:has(> dt:has-text("Model")) bdi:text-matches("gemini-x, 1.8 s · STOP · .* tokens in")',
        '.current .why .note:has-text("which state it read")',
        'aside :text("topic")',
      ],
    },
    {
      question: 'Why did it fail?',
      clicks: [(page) => page.locator('#failed').getByRole('link', { name: 'clerk' }).first()],
      answer: [
        '.event .error:has-text("You exceeded your quota.")',
        '.event:has(.error) .why[open] div:has(> dt:has-text("Answers of tools")):has-text("id: 207) ✗ The server did not answer.")',
      ],
    },
    {
      question: 'Which tool failed, with which arguments?',
      clicks: [],
      answer: [
        '#failed tr:has-text("tool translate_a_page"):has-text("page: "):has-text("The page is empty."):has-text("newest of 12")',
      ],
    },
    {
      question: 'Why was the latest answer given?',
      clicks: [
        (page) =>
          page.locator('#latest tr:has-text("I found entry 211.")').getByRole('link', { name: 'Why', exact: true }),
      ],
      answer: [
        '.current :text("I found entry 211.")',
        '.current .why[open] div:has(> dt:has-text("Model")) bdi:text-matches("gemini-x-lite, 1.5 s · STOP · .* tokens in")',
        'aside :text("topic")',
      ],
    },
    {
      question: 'Which other tools failed?',
      clicks: [(page) => page.locator('#failed').getByRole('link', { name: 'fetch_page' }).first()],
      answer: [
        '.current .call[open] summary:has-text("fetch_page id:") .chip:text("failed")',
        '.current .call[open] summary :text("The server did not answer.")',
      ],
    },
    {
      question: 'What waits for whom, since when?',
      clicks: [],
      answer: ['#waits tbody tr:first-child:has-text("delete_account"):has-text("research / tim"):has-text("10.5 d")'],
    },
    {
      question: 'May it do that?',
      clicks: [(page) => page.locator('#waits').getByRole('link', { name: 'Approve or reject' }).first()],
      answer: [
        '.asked:has-text("clerk"):has-text("waits 10.5 d")',
        '.before li:has-text("Find me a train to Lisbon.")',
        'button:text("Approve")',
        'button:text("Reject")',
      ],
    },
    {
      question: 'What does it cost, by user and day?',
      clicks: [(page) => page.locator('.card', { hasText: 'Cost today' }).getByRole('link').first()],
      answer: [
        'thead:has-text("Today")',
        'tr:has-text("grace"):has-text("4 apps"):has-text("0.0")',
        'tr:has-text("Total")',
      ],
    },
    {
      question: 'Which sessions are largest?',
      clicks: [(page) => page.locator('.card', { hasText: 'Largest session' }).getByRole('link').first()],
      answer: ['#largest tr:has-text("Translate the handbook"):has-text("kB"):has-text("2,005"):has-text("813,624")'],
    },
    {
      question: 'What changed in the state, by which event?',
      clicks: [session('Refund of order 17')],
      answer: [
        'aside div:has(> dt:has-text("step")) :text("#8")',
        '#e8 .delta :text("not set") + :text("→")',
        '#e8 .why[open] dd:has-text("find_order")',
      ],
    },
    {
      question: 'How did the state change?',
      clicks: [session('Refund of order 17'), link('State')],
      answer: [
        '.changes tr:has-text("step"):has-text("not set →"):has-text("approval"):has-text("#8"):has-text("concierge")',
      ],
    },
    {
      question: 'Where does the time go?',
      clicks: [session('Refund of order 17'), link('Time')],
      answer: [
        '.lane svg .tool',
        '.lane svg .failed',
        '.lane svg .unknown',
        '.went p:first-child:has-text("100 % of the time went to waiting for a person")',
        '.went .shares:has-text("between steps"):has-text("find_order < 1 % 4 s")',
        '.went :text("5 model requests not recorded")',
        '.went :text("Longest step, waits not counted")',
      ],
    },
    {
      question: 'What did two branches do in parallel?',
      clicks: [session('Translate the handbook')],
      answer: [
        '#branches h2:has-text("3 branches worked and two or more at once for "):has-text("Translate the handbook.")',
        '#branches .side:has-text("fan.worker_0"):has-text("334 model calls 1.7 min")',
        '#branches .side:has-text("fan.worker_1") li:has-text("page: 1000"):has-text("✓")',
        '#branches .side:has-text("fan.worker_2") li:has-text("page: 8"):has-text("The page is empty.")',
        '#branches .side:has-text("fan.worker_2") li:has-text("page: 1001"):has-text("✓")',
        '#branches .side:has-text("fan.worker_2") .bad:text("12 failed")',
        '.why[open] div:has(> dt:has-text("Question")):has-text("Translate the handbook.")',
      ],
    },
    {
      question: 'When did each branch work?',
      clicks: [session('Translate the handbook'), link('3 branches')],
      answer: [
        'h3:has-text("3 branches worked and two or more at once for ")',
        '.side:has-text("fan.worker_0"):has-text("334 model calls 1.7 min"):has-text("271,208 tokens")',
        '.side:has-text("fan.worker_2") li:has-text("page: 8"):has-text("✗ 700 ms"):has-text("The page is empty.")',
        '.side:has-text("fan.worker_2") .bad:text("12 failed")',
        '.lane:has-text("fan.worker_0") svg',
        '.lane:has-text("fan.worker_2") .failed',
      ],
    },
  ])('is answered on the screen after two clicks at most: $question', async ({ clicks, answer }) => {
    await visit({ viewport: { width: 1_440, height: 900 } }, async (page) => {
      await open(page);
      for (const find of clicks) await find(page).click();
      expect(clicks.length).toBeLessThanOrEqual(2);
      for (const each of answer) {
        const found = page.locator(each).first();
        await found.waitFor();
        const { y, height } = (await found.boundingBox())!;
        expect([each, y >= 0 && y + height <= 900]).toEqual([each, true]);
      }
    });
  });

  test.each([1_024, 1_280, 1_440])('the tabs of a session that runs stay in their place at %i px', async (width) => {
    const tabs = (page: Page) =>
      page.evaluate<{ x: number; y: number }[]>(
        '[...document.querySelectorAll(".bar nav a")].map((each) => each.getBoundingClientRect().toJSON())',
      );
    await visit({ viewport: { width, height: 900 } }, async (page) => {
      await page.clock.install();
      const running = { app: 'research', user: 'linus', session: 'session-1213' };
      await page.goto(site.origin + query('/session', running));
      await page.locator('.bar').getByText('held by').waitFor();
      const bar = (await page.locator('.bar').boundingBox())!;
      const places = await tabs(page);
      expect(new Set(places.map(({ y }) => y)).size).toBe(1);
      expect(bar.height).toBeLessThan(90);
      for (const passed of [7_000, 50_000, 600_000, 7_200_000]) {
        await page.clock.fastForward(passed);
        expect(await tabs(page)).toEqual(places);
      }
    });
  });

  test('an agent has one color in the conversation and in its time, and failures are seen on a phone', async () => {
    await visit(phone, async (page) => {
      const colorOf = (selector: string) =>
        page.evaluate<string>(`getComputedStyle(document.querySelector(${JSON.stringify(selector)})).color`);
      await page.goto(site.origin + query('/session', OF_LONGEST));
      const talk = await colorOf('.event[data-branch="fan.worker_1"] .author');
      await page.goto(site.origin + query('/time', OF_LONGEST));
      expect(await colorOf('.lane:nth-child(2) > a')).toBe(talk);
      // Of a block of a thousandth of the width nothing would be seen.
      const stroke = '(({ strokeWidth, vectorEffect }) => [strokeWidth, vectorEffect])';
      expect(await page.evaluate(`${stroke}(getComputedStyle(document.querySelector('.lane .failed')))`)).toEqual([
        '2px',
        'non-scaling-stroke',
      ]);
    });
  });

  test('branches stand side by side, and one click leads from each to its talk alone, another one back', async () => {
    await visit({ viewport: { width: 1_440, height: 900 } }, async (page) => {
      await page.goto(site.origin + query('/time', OF_LONGEST));
      const sides = await Promise.all((await page.locator('.side').all()).map((side) => side.boundingBox()));
      expect(new Set(sides.map((side) => side?.y)).size).toBe(1);
      expect(sides).toHaveLength(3);
      await page.locator('.side').getByRole('link', { name: 'fan.worker_1' }).click();
      const branches = () =>
        page.evaluate<string[]>(
          '[...new Set([...document.querySelectorAll(".event")].map((each) => each.dataset.branch))]',
        );
      expect(await branches()).toEqual(['fan.worker_1']);
      await page.locator('.bar').getByRole('link', { name: 'Show all' }).click();
      expect(await branches()).toHaveLength(3);
      await page.locator('.event:not(.slim)').last().getByTitle('Only this branch').click();
      expect(await branches()).toEqual(['fan.worker_2']);
    });
  });

  test('parallel agents have different colors', async () => {
    await visit({}, async (page) => {
      await page.goto(site.origin + query('/session', OF_WIDE));
      const colors = await page.evaluate<string[]>(
        '[...document.querySelectorAll(".event.agent")].map((each) => getComputedStyle(each).borderLeftColor)',
      );
      expect(new Set(colors).size).toBe(4);
    });
  });

  test('the time line is one stop of the Tab key, and shows where one is', async () => {
    await visit(phone, async (page) => {
      await page.goto(site.origin + query('/session', { ...OF_WIDE, at: 30 }));
      const steps = page.locator('.timeline li a');
      expect(await steps.count()).toBeGreaterThan(30);
      expect(await page.locator('.timeline li a[tabindex="0"], .timeline li a:not([tabindex])').count()).toBe(1);
      const current = page.locator('.timeline [aria-current]');
      const [line, place] = [await page.locator('.timeline ol').boundingBox(), await current.boundingBox()];
      expect(place!.x).toBeGreaterThan(line!.x);
      expect(place!.x + place!.width).toBeLessThan(line!.x + line!.width);
      await current.focus();
      await page.keyboard.press('ArrowRight');
      await page.keyboard.press('Enter');
      await page.waitForURL(/at=31/);
    });
  });

  test('Markdown has links, tasks, lists in both directions, and code that is copied', async () => {
    await visit({ permissions: ['clipboard-read', 'clipboard-write'] }, async (page) => {
      await page.goto(site.origin + query('/session', OF_WIDE));
      const text = page.locator('.markdown').last();
      expect(await text.getByRole('link').evaluateAll((links) => links.map(String))).toEqual([
        'https://www.example.com/docs',
      ]);
      expect(await text.locator('.task').allInnerTexts()).toEqual([
        '☑ read https://www.example.com/docs',
        '☐ measured',
      ]);
      const list = text.locator('ul').last();
      const [outer, item] = [await list.boundingBox(), await list.locator('li').boundingBox()];
      // The bullets are at the right, and have room.
      expect(item!.x + item!.width).toBeLessThan(outer!.x + outer!.width - 16);
      await text.getByRole('button', { name: 'Copy' }).click();
      await text.getByRole('button', { name: 'Copied' }).waitFor();
      expect(await page.evaluate('navigator.clipboard.readText()')).toContain('select a_column, a_column');
    });
  });

  test('is used with the keyboard alone, and shows where it is', async () => {
    await visit({}, async (page) => {
      await page.goto(site.origin + STORY);
      const focused = () =>
        page.evaluate<{ text: string; outline: string }>(
          '({ text: document.activeElement.textContent.trim(), outline: getComputedStyle(document.activeElement).outlineStyle })',
        );
      const reach = async (text: RegExp) => {
        for (let stops = 0; stops < 60; stops++) {
          await page.keyboard.press('Tab');
          const focus = await focused();
          expect(focus).not.toMatchObject({ outline: 'none' });
          if (text.test(focus.text)) return;
        }
        throw new Error(`Tab does not reach ${text.source}`);
      };
      await reach(/^Call\s+find_order\s/);
      await page.keyboard.press('Enter');
      expect(await page.locator('pre').getByText('"Desk lamp"').isVisible()).toBe(true);
      await reach(/^JSON/);
      await page.keyboard.press('Enter');
      await page.waitForURL(/\/event\?/);
    });
  });

  test('is read without JavaScript', async () => {
    await visit({ javaScriptEnabled: false }, async (page) => {
      await page.goto(site.origin);
      await page.getByRole('link', { name: 'support' }).click();
      await page.getByRole('searchbox', { name: 'Title' }).fill('Refund');
      await page.getByRole('button', { name: 'Search' }).click();
      await page.getByRole('link', { name: 'Refund of order 17' }).click();
      await page.getByText('Call find_order').click();
      expect(await page.locator('pre').getByText('"Desk lamp"').isVisible()).toBe(true);
      expect(await page.locator('#e3').isVisible()).toBe(false);
      await page.locator('#e2').getByRole('link', { name: '#3' }).click();
      expect(await page.locator('#e3').isVisible()).toBe(true);
      expect(await page.getByRole('status').isVisible()).toBe(false);
      await page.getByTitle('The state as of this event').nth(3).click();
      expect(await page.getByText('as of event #4').isVisible()).toBe(true);
    });
  });

  test('shows what another connection appends, once, also after the connection was lost', async () => {
    const { driver, dbName } = served.orm.config.getAll();
    const other = await MikroORM.init({ driver, dbName, entities: adkEntities() });
    const service = new MikroOrmSessionService(other.em);
    const key = { ...KEY, sessionId: 'live' };
    const session = await service.createSession(key);
    const append = (event: Parameters<typeof createEvent>[0]) =>
      service.appendEvent({ session, event: createEvent({ author: 'agent', ...event }) });
    const call = (id: string) => ({ content: { parts: [{ functionCall: { id, name: 'look_up', args: {} } }] } });
    await visit({}, async (page) => {
      await page.goto(site.origin + query('/session', { ...OF_STORY, session: 'live' }));
      await page.getByText('Live', { exact: true }).waitFor();
      await append(call('c1'));
      await page.getByText('no answer yet').waitFor();
      await append({
        content: { parts: [{ functionResponse: { id: 'c1', name: 'look_up', response: { found: 'a needle' } } }] },
      });
      await page.locator('.call .answer[data-closes="true"]').waitFor({ state: 'attached' });
      expect(await page.getByText('no answer yet').count()).toBe(0);
      // The answer is folded into the line of its call.
      expect(await page.locator('#e1 summary').first().innerText()).toMatch(/look_up\s+✓ [\d.]+ m?s #2$/);
      expect(await page.locator('#e2').isVisible()).toBe(false);

      // The server closes the connection, and refuses the next ones.
      await page.context().setOffline(true);
      served.dropConnections();
      // In the bar that stays.
      await page.locator('.bar').getByText('Connection lost').waitFor();
      await append({
        content: { parts: [{ text: 'said meanwhile' }] },
        actions: { stateDelta: { mood: 'fine' } },
      });
      await page.context().setOffline(false);
      await page.getByText('said meanwhile').waitFor();
      await page.getByText('Live', { exact: true }).waitFor();
      expect(await page.getByText('said meanwhile').count()).toBe(1);
      // The state is updated, too.
      await page.locator('#state').getByText('mood').waitFor();
      expect(await page.locator('.event').count()).toBe(3);
    }).finally(() => other.close(true));
  });

  test('shows what branches do at the same time while they do it, below the newest event', async () => {
    const session = await served.service.createSession({ ...KEY, sessionId: 'parallel' });
    const say = (author: string, parts: object[]) => {
      const branch = author === 'user' ? {} : { branch: `fan.${author}` };
      return served.service.appendEvent({ session, event: createEvent({ author, ...branch, content: { parts } }) });
    };
    const call = (page: number) => ({ functionCall: { id: `c${page}`, name: 'translate', args: { page } } });
    await visit({ viewport: { width: 1_440, height: 900 } }, async (page) => {
      await page.goto(site.origin + query('/session', { ...OF_STORY, session: 'parallel' }));
      await page.getByText('Live', { exact: true }).waitFor();
      await say('user', [{ text: 'Translate it.' }]);
      await say('fr', [call(1)]);
      await say('pl', [call(2)]);
      const branches = page.locator('#branches');
      await branches.getByText('2 branches worked').waitFor();
      expect(await branches.locator('.side').allInnerTexts()).toEqual([
        expect.stringMatching(/^fan\.fr[^]*translate page: 1 no answer yet$/),
        expect.stringMatching(/^fan\.pl[^]*translate page: 2 no answer yet$/),
      ]);
      for (let i = 0; i < 12; i++) await say('fr', [{ text: `Line ${i} of the page.` }]);
      await branches.getByText('“Line 11 of the page.”').waitFor();
      // Whoever sees the newest event still does.
      await page.locator('#e15 .text, #e15 .markdown').filter({ visible: true }).waitFor();
      const { y, height } = (await page.locator('#e15').boundingBox())!;
      expect(y + height).toBeLessThan(900);
    });
    await served.service.deleteSession({ ...KEY, sessionId: 'parallel' });
  });

  test('the first page shows what happens, as the log says it', async () => {
    const session = await served.service.createSession({ ...KEY, sessionId: 'happens' });
    await visit({}, async (page) => {
      await open(page);
      await page.getByText('Live', { exact: true }).waitFor();
      const failed = page.locator('#failed');
      expect(await failed.innerText()).not.toContain('The bank is closed');
      // Not by the clock: that is too slow for it.
      await page.evaluate('document.getElementById("now").dataset.refresh = ""');
      for (const errorMessage of ['The bank is closed.', 'The shop is closed.']) {
        const event = createEvent({ author: 'agent', errorCode: 'CLOSED', errorMessage });
        await served.service.appendEvent({ session, event });
        await failed.getByText(errorMessage).waitFor();
      }
    });
    await served.service.deleteSession({ ...KEY, sessionId: 'happens' });
  });

  test('durations and relative times count on while one looks', async () => {
    await visit({}, async (page) => {
      await openWithClock(page);
      const runs = page.locator('#runs td[data-label="For"] time').first();
      const waits = page.locator('#waits tr:has-text("session-1005") time');
      await page.clock.fastForward(7_200_000);
      expect([await runs.innerText(), await waits.innerText()]).toEqual([
        expect.stringMatching(/^2(\.\d)? h$/),
        '10.5 d',
      ]);
      const updated = page.locator('#apps td[data-label="Last update"] time').first();
      const before = Number.parseInt(await updated.innerText());
      await page.clock.fastForward(3_600_000);
      expect(await runs.innerText()).toMatch(/^3(\.\d)? h$/);
      expect(await updated.innerText()).toBe(`${before + 1} hours ago`);
    });
  });

  test.each([
    ['wide', { viewport: { width: 1_440, height: 900 } }],
    ['on a phone', phone],
  ])('rows stay where they are while their times count on, and are no links themselves, %s', async (_, options) => {
    await visit(options, async (page) => {
      await openWithClock(page);
      // A link of a number alone grows by itself.
      const places = () =>
        page.evaluate<number[][]>(
          '[...document.querySelectorAll(".board tr, .board a:not(.number a)")].map((each) => { const { x, y, height } = each.getBoundingClientRect(); return [x, y, height]; })',
        );
      const before = await places();
      expect(before.length).toBeGreaterThan(50);
      for (const ms of [8_000, 50_000, 600_000, 4_000_000, 90_000_000]) {
        await page.clock.fastForward(ms);
        expect(await places()).toEqual(before);
      }
      await page.locator('#runs tbody tr').first().hover();
      expect(
        await page.evaluate('getComputedStyle(document.querySelector("#runs tbody tr:hover")).backgroundColor'),
      ).toBe('rgba(0, 0, 0, 0)');
    });
  });

  test('on a phone the first screen has more than sums', async () => {
    await visit(phone, async (page) => {
      await open(page);
      expect((await page.locator('#waits tbody tr').nth(1).boundingBox())!.y).toBeLessThan(phone.viewport.height);
      expect((await page.locator('.cards').boundingBox())!.height).toBeLessThan(phone.viewport.height / 4);
    });
  });

  test('whoever finds one session from the first page sees at once why it answered so', async () => {
    await visit({}, async (page) => {
      await open(page);
      await page.getByLabel('Find a session').fill('Refund');
      await page.keyboard.press('Enter');
      await page.locator('#e8 .why[open]').waitFor();
    });
  });

  test('what is still counted comes while one looks', async () => {
    const never = new Promise<never>(() => undefined);
    const counting = jest.spyOn(Recent.prototype, 'update').mockReturnValue(never);
    await visit({}, async (page) => {
      await page.clock.install();
      // Not because the log has something new.
      await page.route('**/live-now*', (route) => route.abort());
      await page.goto(site.origin);
      await page.getByText('Still counting').waitFor();
      counting.mockRestore();
      await page.getByText('Still counting').waitFor({ state: 'detached' });
      await page.locator('#now[data-refresh="30"]').waitFor();
      // The times that were loaded count at once, not only from the next second.
      await page.context().setOffline(true);
      await page.clock.fastForward(7_200_000);
      expect(await page.locator('#runs td[data-label="For"] time').first().innerText()).toMatch(/^2(\.\d)? h$/);
    }).finally(() => counting.mockRestore());
  });

  test('a long conversation is read page by page, and only what is seen is in the document', async () => {
    const key = { ...KEY, sessionId: 'long' };
    const session = await served.service.createSession(key);
    for (let i = 0; i < 5; i++) {
      const events = Array.from({ length: 100 }, () =>
        createEvent({ author: 'agent', content: { parts: [{ text: 'said' }] } }),
      );
      await served.service.appendEvents({ session, events });
    }
    await visit({}, async (page) => {
      const nodes = () => page.evaluate<number>('document.querySelectorAll("*").length');
      const numbers = () =>
        page.evaluate<number[]>('[...document.querySelectorAll(".event")].map((each) => Number(each.dataset.seq))');
      await page.goto(site.origin + query('/session', { ...OF_STORY, session: 'long' }));
      await page.getByText('Live', { exact: true }).waitFor();
      const atFirst = await nodes();
      // It opens at its end.
      expect(await page.evaluate('document.querySelector("#e500").getBoundingClientRect().top < innerHeight')).toBe(
        true,
      );
      let upTo = 500;
      while (upTo > 40) {
        expect(await numbers()).toEqual(Array.from({ length: 40 }, (_, i) => upTo - 39 + i));
        expect(await nodes()).toBeLessThan(atFirst + 30);
        upTo -= 40;
        await page.getByRole('link', { name: 'Older events' }).click();
        await page.locator(`#e${upTo}`).waitFor();
      }
      expect((await numbers())[0]).toBe(1);
      // New events push out the old ones.
      await page.goto(site.origin + query('/session', { ...OF_STORY, session: 'long' }));
      await page.getByText('Live', { exact: true }).waitFor();
      for (let i = 0; i < 3; i++) {
        const events = Array.from({ length: 100 }, () => createEvent({ author: 'agent' }));
        await served.service.appendEvents({ session, events });
      }
      await page.locator('#e800').waitFor();
      expect(await numbers()).toEqual(Array.from({ length: 120 }, (_, i) => 681 + i));
      expect(await nodes()).toBeLessThan(3 * atFirst);
    });
  });

  test('what waits for an answer leads to its call', async () => {
    await visit({}, async (page) => {
      await page.goto(site.origin + STORY);
      const waiting = page.locator('#waiting');
      expect(await waiting.innerText()).toMatch(/amount: 59\.9, reason: "arrived broken"/);
      await waiting.getByRole('link', { name: '#8' }).click();
      await page.waitForURL(/#e8$/);
      await waiting.getByRole('link', { name: 'Answer' }).click();
      await page.getByText('continues when your application runs').waitFor();
      expect(await accessibilityProblems(page)).toEqual([]);
    });
  });

  test('a change is confirmed, and made', async () => {
    await served.service.createSession({ ...KEY, sessionId: 'named' });
    await visit({}, async (page) => {
      await page.goto(site.origin + query('/session', { ...OF_STORY, session: 'named' }));
      await page.getByRole('link', { name: 'Edit title' }).click();
      await page.getByLabel('Title').fill('A new name');
      await page.getByRole('button', { name: 'Save' }).click();
      // The browser requires the checkbox.
      expect(page.url()).toContain('/describe');
      await page.getByLabel('Yes, change this session').check();
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('heading', { name: 'A new name' }).waitFor();
    });
  });

  test('saving what was not edited changes nothing, and what was edited is the only change', async () => {
    // Has characters that browsers change in fields, and characters that separate labels.
    const key = { ...KEY, sessionId: 'a\nb\r\nc "&d' };
    const title = ' two\nlines\r ';
    const labels = { note: 'a\nteam=red', spaces: '  x ', quoted: '"q"', odd: '\r\n\t\u2028', plain: 'a b=c' };
    await served.service.createSession(key);
    const { sessions } = await served.service.findSessions({ appName: KEY.appName, limit: 1 });
    expect(sessions).toMatchObject([{ sessionId: key.sessionId }]);
    await served.service.describeSession(key, { title, labels });
    const described = async () => {
      const { sessions } = await served.service.findSessions({ appName: KEY.appName, title: 'two' });
      return sessions.map((each) => ({ title: each.title, labels: each.labels }));
    };
    const of = { app: key.appName, user: key.userId, session: key.sessionId };
    await visit({}, async (page) => {
      const save = async (edit: () => Promise<unknown>) => {
        await page.goto(site.origin + query('/describe', of));
        await edit();
        await page.getByLabel('Yes, change this session').check();
        await page.getByRole('button', { name: 'Save' }).click();
        await page.getByRole('link', { name: 'Edit title' }).waitFor();
      };
      await save(async () => undefined);
      expect(await described()).toEqual([{ title, labels }]);
      await save(() => page.getByLabel('Title').fill(' two '));
      expect(await described()).toEqual([{ title: ' two ', labels }]);
      const field = page.getByLabel('Labels');
      await save(async () => field.fill(`${await field.inputValue()}\nteam=blue`));
      expect(await described()).toEqual([{ title: ' two ', labels: { ...labels, team: 'blue' } }]);
      // The forms that lead to another page of the session.
      await served.service.appendEvent({ session: (await served.service.getSession(key))!, event: createEvent() });
      await page.goto(site.origin + query('/session', of));
      await page.getByRole('button', { name: 'Go' }).click();
      await page.getByText('as of event #1').waitFor();
      await page.goto(site.origin + query('/fork', of));
      await page.getByLabel('Id of the new session').fill('forked from lines');
      await page.getByLabel('Yes, change this session').check();
      await page.getByRole('button', { name: 'Fork' }).click();
      await page.waitForURL(/session=forked/);
    });
    await served.service.deleteSession(key);
  });

  // ADK_TEST_UPDATE takes the pictures: the end of a conversation with the state and a call that waits, and where its time went.
  (process.env['ADK_TEST_UPDATE'] === undefined ? test.skip : test).each([
    ['light', 'docs/studio.jpg'],
    ['dark', 'docs/studio-dark.jpg'],
  ] as const)('the %s picture of docs/studio.md', async (colorScheme, path) => {
    // The story is stored at once; this is how long its models would have taken.
    await served.orm.em
      .getConnection()
      .execute('update adk_events set append_time = timestamp + 1700 where session_id = ?', [KEY.sessionId]);
    await visit({ viewport: { width: 1_100, height: 620 }, colorScheme, reducedMotion: 'reduce' }, async (page) => {
      await page.goto(site.origin + STORY);
      await page.locator('.why[open] > summary').click();
      await page.locator('#waiting').scrollIntoViewIfNeeded();
      const talk = (await page.screenshot()).toString('base64');
      await page.goto(site.origin + query('/time', OF_STORY));
      await page.evaluate('scrollTo(0, 0)');
      const { y, height } = (await page.locator('.turn').last().boundingBox())!;
      const clip = { x: 0, y: y - 10, width: 1_100, height: height + 20 };
      const time = (await page.screenshot({ clip, fullPage: true })).toString('base64');
      await page.goto('about:blank');
      const images = [talk, time].map((data) => `<img style="display: block" src="data:image/png;base64,${data}">`);
      await page.setContent(`<body style="margin: 0">${images.join('')}`);
      await page.screenshot({ path, type: 'jpeg', quality: 70, fullPage: true });
    });
  });
});
