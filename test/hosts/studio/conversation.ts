import { deflateSync } from 'node:zlib';
import { createEvent, type Event } from '@google/adk';
import type { MikroOrmSessionService } from '../../../src/index.js';

type Parts = NonNullable<NonNullable<Event['content']>['parts']>;

/** A small picture of a lamp at night. */
export const PNG = png(120, 80);

/** @returns a picture in base64. */
export function png(width: number, height: number): string {
  const rows = Array.from({ length: height }, (_, y) => [
    0,
    ...Array.from({ length: width }, (_, x) => {
      const light = Math.max(0, 1 - Math.hypot(x - width / 2, y - height / 3) / 60);
      return [40 + 215 * light, 42 + 170 * light, 74 + 60 * light];
    }).flat(),
  ]);
  const chunk = (type: string, data: Buffer) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, sum]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2], 8);
  const signature = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);
  const data = deflateSync(Buffer.from(rows.flat()));
  return Buffer.concat([
    signature,
    chunk('IHDR', header),
    chunk('IDAT', data),
    chunk('IEND', Buffer.alloc(0)),
  ]).toString('base64');
}

/** Like `crc32` of node:zlib, which needs Node.js 20.15. */
function crc32(data: Buffer): number {
  let sum = ~0;
  for (const byte of data) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}

export const KEY = { appName: 'support', userId: 'ada', sessionId: 'refund-17' };

const NOON = Date.UTC(2026, 10, 22, 12, 0, 0);

/** Stores a conversation with everything that a page can show. */
export async function tellStory(service: MikroOrmSessionService): Promise<void> {
  const session = await service.createSession({
    ...KEY,
    state: { topic: 'refund', 'user:language': 'English', 'app:shop': 'open' },
  });
  await service.describeSession(KEY, { title: 'Refund of order 17', labels: { team: 'billing', tier: 'gold' } });
  let seconds = 0;
  const say = (author: string, parts: Parts, more: Partial<Event> = {}, stateDelta: Record<string, unknown> = {}) => {
    seconds += 4;
    const event = createEvent({
      author,
      invocationId: 'turn-1',
      timestamp: NOON + seconds * 1_000,
      content: { role: author === 'user' ? 'user' : 'model', parts },
      ...more,
    });
    Object.assign(event.actions.stateDelta, stateDelta);
    return service.appendEvent({ session, event });
  };
  const sub = { branch: 'concierge.orders' };
  await say('user', [
    { text: 'Hello! The lamp of my order 17 arrived broken. Here is a picture of it. Can I have my money back?' },
    { inlineData: { mimeType: 'image/png', data: PNG, displayName: 'lamp.png' } },
  ]);
  await say(
    'concierge',
    [
      { text: 'The person wants a refund. I should look the order up before I promise anything.', thought: true },
      { text: 'I am sorry to hear that. Let me look your order up.' },
      { functionCall: { id: 'call-1', name: 'find_order', args: { order: 17, customer: 'ada' } } },
    ],
    {
      usageMetadata: {
        promptTokenCount: 1380,
        cachedContentTokenCount: 1024,
        candidatesTokenCount: 32,
        totalTokenCount: 1412,
      },
    },
    { order: { id: 17, total: 59.9 } },
  );
  await say('concierge', [
    {
      functionResponse: {
        id: 'call-1',
        name: 'find_order',
        response: { order: 17, item: 'Desk lamp', paid: '59.90 EUR', delivered: '2026-11-20' },
      },
    },
  ]);
  await say(
    'orders',
    [
      { text: 'The order was delivered two days ago, so it can be refunded in full.' },
      { executableCode: { language: 'PYTHON', code: 'print(59.90 * 1.0)' } as never },
      { codeExecutionResult: { outcome: 'OUTCOME_OK', output: '59.9' } as never },
    ],
    sub,
    { refundable: true },
  );
  await say('orders', [{ functionCall: { id: 'call-2', name: 'charge_back', args: { amount: 59.9 } } }], sub);
  await say(
    'orders',
    [{ functionResponse: { id: 'call-2', name: 'charge_back', response: { error: 'The bank did not answer.' } } }],
    sub,
  );
  await say('orders', [], {
    ...sub,
    errorCode: 'MODEL_OVERLOADED',
    errorMessage: 'The model is overloaded. Try again.',
  });
  await service.updateState({ ...KEY, set: { escalated: true, 'user:vip': true } });
  await say(
    'concierge',
    [
      { text: 'The bank does not answer right now. A colleague has to approve the refund by hand; I have asked one.' },
      { functionCall: { id: 'call-3', name: 'ask_approval', args: { amount: 59.9, reason: 'arrived broken' } } },
    ],
    { longRunningToolIds: ['call-3'] },
    { step: 'approval', 'user:refunds': 1 },
  );
  await say('user', [{ text: 'Thank you, I can wait.' }]);
}
