import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';

/** A server-sent event. */
export interface Frame {
  id: string;
  event: string;
  data: unknown;
}

/** One connection of an `EventSource`. Leaving the loop drops it. */
export async function* connection(url: string, lastEventId?: string): AsyncGenerator<Frame> {
  const request = get(url, { headers: lastEventId === undefined ? {} : { 'last-event-id': lastEventId } });
  try {
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    expect([response.statusCode, response.headers['content-type']]).toEqual([200, 'text/event-stream']);
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) {
      const blocks = (text + String(chunk)).split('\n\n');
      text = blocks.pop()!;
      for (const block of blocks) {
        const fields = block.split('\n').map((line) => line.split(/: ?(.*)/s).slice(0, 2));
        const { id, event, data } = Object.fromEntries(fields) as Record<string, string>;
        if (data !== undefined) yield { id: id!, event: event!, data: JSON.parse(data) };
      }
    }
  } finally {
    request.destroy();
  }
}

/** The next frames of a connection, which stays open. */
export async function take(frames: AsyncGenerator<Frame>, count: number): Promise<Frame[]> {
  const taken: Frame[] = [];
  while (taken.length < count) {
    const { done, value } = await frames.next();
    if (done) throw new Error('The server has closed the connection.');
    taken.push(value);
  }
  return taken;
}

/** The numbers of the events, from the ids of the frames. */
export const idsOf = (frames: Frame[]) =>
  frames.map(({ id }) => {
    const cursor = JSON.parse(id) as number | { seq: number };
    return typeof cursor === 'number' ? cursor : cursor.seq;
  });
