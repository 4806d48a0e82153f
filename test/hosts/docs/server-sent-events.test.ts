import type { Event } from '@google/adk';
import { once } from 'node:events';
import { get, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { AdkEvent } from '../../../entities/index.js';
import { createEventStreamHandler } from '../../../packages/http/src/index.js';
import { adkServices } from '../../../src/index.js';
import * as clock from '../../../src/model/clock.js';
import { until } from '../../contract/tools.js';
import { connection, idsOf, take, type Frame } from '../../support/event-source.js';
import { randomOf } from '../../support/random-numbers.js';
import { blocksOf, compile, type Compiled } from './blocks.js';
import { given, takeBack, type Given } from './given.js';

// A copy of the module, whose timers a test can replace.
jest.mock('../../../src/model/clock.js', () => ({
  __esModule: true,
  ...jest.requireActual<typeof clock>('../../../src/model/clock.js'),
}));

const HEADING = 'Events to a browser, with server-sent events';

const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

describe('the recipe for server-sent events', () => {
  let compiled: Compiled;
  let lent: Given;
  let server: Server;
  let url: string;
  const append = (count: number) =>
    lent.service.appendEvents({
      session: lent.session,
      events: Array.from({ length: count }, () => lent.createEvent({ author: 'support' })),
    });

  beforeAll(async () => {
    const root = process.cwd();
    const block = blocksOf('docs/recipes.md').find(({ heading }) => heading === HEADING);
    lent = await given();
    await takeBack(lent);
    [compiled] = (await compile(root, [block!], Object.keys(lent))) as [Compiled];
    expect(compiled.complaints).toEqual([]);
  });
  beforeEach(async () => {
    lent = await given();
    ({ server } = (await compiled.run(lent)) as { server: Server });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/?session=${lent.session.id}`;
  });
  afterEach(async () => {
    jest.restoreAllMocks();
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
    await takeBack(lent);
  });

  test('what is appended while the client is away comes when it is back, once', async () => {
    await append(1);
    const first = connection(url);
    const seen = await take(first, 2);
    expect(idsOf(seen)).toEqual([1, 2]);
    await first.return(undefined);

    await append(3);
    const second = connection(url, seen.at(-1)!.id);
    expect(idsOf(await take(second, 3))).toEqual([3, 4, 5]);
    await append(2);
    expect(idsOf(await take(second, 2))).toEqual([6, 7]);
    await second.return(undefined);
  });

  test('a client that is cut off again and again, while somebody writes, gets everything once and in order', async () => {
    const COUNT = 150;
    const [ofWriter, ofClient] = [randomOf('writer'), randomOf('client')];
    const writing = (async () => {
      while (lent.session.events.length < COUNT) {
        await append(Math.min(1 + ofWriter(4), COUNT - lent.session.events.length));
        await setTimeout(ofWriter(10));
      }
    })();

    const received: Frame[] = [];
    let connections = 0;
    while (received.length < COUNT) {
      connections++;
      let left = 1 + ofClient(8);
      for await (const frame of connection(url, received.at(-1)?.id)) {
        received.push(frame);
        if (--left === 0 || received.length === COUNT) break;
      }
      await setTimeout(ofClient(20));
    }
    await writing;

    expect(connections).toBeGreaterThan(10);
    expect(idsOf(received)).toEqual(numbers(1, COUNT));
    expect(received.map(({ data }) => (data as Event).id)).toEqual(lent.session.events.map(({ id }) => id));
  });

  describe('a browser that has events of another history', () => {
    const keyOf = ({ appName, userId, id }: Given['session']) => ({ appName, userId, sessionId: id });
    /** The events on a page that clears itself at a reset. */
    const shownBy = (frames: Frame[]) => {
      const shown = new Map<number, string>();
      for (const [i, { event, data }] of frames.entries()) {
        if (event === 'reset') shown.clear();
        else shown.set(idsOf(frames)[i]!, (data as Event).id);
      }
      return [...shown.values()];
    };
    const stored = async () => (await lent.service.getSession(keyOf(lent.session)))!.events.map(({ id }) => id);
    let logged: jest.SpiedFunction<typeof console.error>;
    beforeEach(() => {
      logged = jest.spyOn(console, 'error').mockReturnValue();
    });
    afterEach(() => expect(logged).not.toHaveBeenCalled());

    const rewind = async () => {
      lent.session = await lent.service.rewindSession(keyOf(lent.session), { at: 1 });
      await append(2);
    };
    const createAgain = async () => {
      await lent.service.deleteSession(keyOf(lent.session));
      lent.session = await lent.service.createSession(keyOf(lent.session));
      await append(5);
    };

    test.each([
      { what: 'a rewind', change: rewind },
      { what: 'a deletion and a creation under the same id', change: createAgain },
    ])('has those of the session after $what, connected or not', async ({ change }) => {
      await append(4);
      const connected = connection(url);
      const seen = await take(connected, 5);
      await change();
      const ids = await stored();
      seen.push(...(await take(connected, 1 + ids.length)));
      expect(seen.map(({ event }) => event).indexOf('reset')).toBe(5);
      expect(shownBy(seen)).toEqual(ids);
      await connected.return(undefined);

      const back = connection(url, seen[4]!.id);
      const again = [...seen.slice(0, 5), ...(await take(back, 1 + ids.length))];
      expect(shownBy(again)).toEqual(ids);
      await append(1);
      again.push(...(await take(back, 1)));
      expect(shownBy(again)).toEqual(await stored());
      await back.return(undefined);

      // A reader can return with the id of the reset.
      const third = connection(url, again[5]!.id);
      expect(idsOf(await take(third, ids.length))).toEqual(numbers(1, ids.length));
      await third.return(undefined);
    });

    test('has those of the session when its id is ahead of the log', async () => {
      await append(2);
      const first = connection(url);
      const ahead = { ...(JSON.parse((await take(first, 3)).at(-1)!.id) as object), seq: 99 };
      await first.return(undefined);
      for (const id of ['99', JSON.stringify(ahead)]) {
        const frames = connection(url, id);
        const taken = await take(frames, 4);
        expect(taken.map(({ event }) => event)).toEqual(['reset', 'message', 'message', 'message']);
        expect(shownBy(taken)).toEqual(await stored());
        await frames.return(undefined);
      }
    });
  });

  test('a page that shows some events gets those after them, and continues like any other', async () => {
    await append(4);
    const first = connection(`${url}&lastEventId=3`);
    const seen = await take(first, 1);
    await first.return(undefined);
    const again = connection(`${url}&lastEventId=3`, seen[0]!.id);
    expect(idsOf([...seen, ...(await take(again, 1))])).toEqual([4, 5]);
    await again.return(undefined);
  });

  test('the data is the event, whatever it holds', async () => {
    const text = 'a\nb\r\n\ndata: c\u2028 \u{1f600} \ud800';
    const event = lent.createEvent({ author: 'support', content: { role: 'model', parts: [{ text }] } });
    await lent.service.appendEvent({ session: lent.session, event });
    const frames = connection(url, '1');
    const [frame] = await take(frames, 1);
    expect(frame).toMatchObject({ event: 'message', data: { id: event.id, content: event.content } });
    expect(idsOf([frame!])).toEqual([2]);
    await frames.return(undefined);
  });

  test('an event that cannot be read is reported, and the next ones come', async () => {
    await append(2);
    const em = lent.orm.em.fork();
    await em.getConnection().execute(`update adk_events set data = '{' where seq = 2`);
    const frames = connection(url);
    const taken = await take(frames, 3);
    expect(taken).toMatchObject([
      { event: 'message' },
      { event: 'damaged', data: expect.stringContaining('2') },
      { event: 'message' },
    ]);
    expect(idsOf(taken)).toEqual([1, 2, 3]);
    await frames.return(undefined);
    expect(await em.count(AdkEvent)).toBe(3);
  });

  test('a connection on which nothing happens has its heartbeats, and nothing is left of one that is closed', async () => {
    const start = clock.setInterval;
    const timers: NodeJS.Timeout[] = [];
    jest.spyOn(clock, 'setInterval').mockImplementation((beat, ms) => {
      timers.push(start(beat, ms! / 1_000));
      return timers.at(-1)!;
    });
    const stop = jest.spyOn(clock, 'clearInterval');
    // Every statement asks whether it is logged.
    const polls = jest.spyOn(lent.orm.config.getLogger(), 'isEnabled');

    const request = get(url, { headers: { 'last-event-id': '1' } });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) {
      text += String(chunk);
      if (text.endsWith(':\n\n:\n\n') && polls.mock.calls.length > 0) break;
    }
    expect(text).toMatch(/^retry: 1000\n\n(:\n\n)+$/);
    expect(polls).toHaveBeenCalled();

    // The handler stops its timer only after it has left the log, so the previous test's timer may stop now.
    expect(timers).toHaveLength(1);
    await until(() => stop.mock.calls.some(([timer]) => timer === timers[0]));
    polls.mockClear();
    await setTimeout(500);
    expect(polls).not.toHaveBeenCalled();
  });

  test('a client that is slow does not fill the memory of the server', async () => {
    const text = 'x'.repeat(300_000);
    const events = Array.from({ length: 100 }, () =>
      lent.createEvent({ author: 'support', content: { parts: [{ text }] } }),
    );
    await lent.service.appendEvents({ session: lent.session, events });
    const request = get(url);
    const [[, sent], [received]] = (await Promise.all([once(server, 'request'), once(request, 'response')])) as [
      [IncomingMessage, ServerResponse],
      [IncomingMessage],
    ];

    await setTimeout(500);
    expect(sent.writableLength).toBeLessThan(1_000_000);
    let frames = 0;
    for await (const chunk of received.setEncoding('utf8')) {
      frames += String(chunk).split('id: ').length - 1;
      if (frames === 101) break;
    }
    request.destroy();
  });

  test.each(['x', '-1', '1.5', '1e99', '{', 'null', '{"seq":1}'])(
    'Last-Event-ID %j is refused, and the server continues',
    async (lastEventId) => {
      const logged = jest.spyOn(console, 'error').mockReturnValue();
      const request = get(url, { headers: { 'last-event-id': lastEventId } });
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      response.resume();
      expect(response.statusCode).toBe(400);
      expect(logged).not.toHaveBeenCalled();

      const frames = connection(url);
      expect(idsOf(await take(frames, 1))).toEqual([1]);
      await frames.return(undefined);
    },
  );

  describe('the handler', () => {
    const answer = (
      options: Partial<Parameters<typeof createEventStreamHandler>[1]>,
      request = new Request('http://localhost/'),
    ) => {
      const { log } = adkServices(lent.orm.em);
      const { appName, userId, id: sessionId } = lent.session;
      return createEventStreamHandler(log, {
        authorize: () => ({ appName, userId, sessionId }),
        ...options,
      }).fetch(request);
    };

    test('shows nothing to whom the host does not allow it, and reports what fails', async () => {
      const failures: unknown[] = [];
      const onError = (error: unknown) => void failures.push(error);
      const failed = new Error('The login is away.');
      expect((await answer({ authorize: () => false })).status).toBe(403);
      expect((await answer({ authorize: () => Promise.reject(failed), onError })).status).toBe(500);
      expect(failures).toEqual([failed]);
      expect((await answer({}, new Request('http://localhost/', { method: 'DELETE' }))).status).toBe(405);
      const noId = () => ({ ...lent.session, sessionId: '' });
      expect((await answer({ authorize: noId })).status).toBe(404);
    });

    test('reads once whose events a reader gets, also if it begins again', async () => {
      const { appName, userId, id } = lent.session;
      const ids = [id];
      const authorize = () => ({
        ...{ appName, userId },
        get sessionId() {
          return ids.shift() ?? 'another';
        },
      });
      const { body } = await answer(
        { authorize, authorizedMs: 10_000 },
        new Request('http://localhost/?lastEventId=99'),
      );
      let text = '';
      for await (const chunk of body!) {
        text += Buffer.from(chunk as Uint8Array).toString();
        if (text.includes('event: message')) break;
      }
      expect([...text.matchAll(/^event: (.*)$/gm)].map(([, type]) => type)).toEqual(['reset', 'message']);
    });

    test('asks again whether a reader is allowed to read, after a time', async () => {
      const timers = jest.spyOn(clock, 'setTimeout');
      const { body } = await answer({ authorizedMs: 12_345 });
      // Called below: a short time could be over before the first event is read.
      const [expire] = timers.mock.calls.find(([, ms]) => ms === 12_345)!;
      let text = '';
      for await (const chunk of body!) {
        text += Buffer.from(chunk as Uint8Array).toString();
        if (text.includes('event: message')) expire();
      }
      const [{ id }] = [...text.matchAll(/^id: (?<id>.*)$/gm)].map(({ groups }) => groups as { id: string }) as [
        { id: string },
      ];
      const again = new Request('http://localhost/', { headers: { 'last-event-id': id } });
      expect((await answer({ authorize: () => false }, again)).status).toBe(403);
    });

    test('ends its streams when its signal fires', async () => {
      const stopping = new AbortController();
      const { body } = await answer({ signal: stopping.signal });
      const text: string[] = [];
      for await (const chunk of body!) {
        text.push(Buffer.from(chunk as Uint8Array).toString());
        if (text.length === 2) stopping.abort();
      }
      expect(text).toEqual(['retry: 1000\n\n', expect.stringMatching(/^id: .*\nevent: message\ndata: .*\n\n$/)]);
    });
  });
});
