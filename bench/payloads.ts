import { createEvent, type Event } from '@google/adk';

const WORDS =
  'the flight to Lisbon leaves at nine and there is a room by the river for three nights would you like me to book it now'.split(
    ' ',
  );

/** Sizes in bytes, and their frequency; an event has 600 bytes on average. */
const FEW_LARGE = { every: 400, bytes: 50_000 };
const SOME_MEDIUM = { every: 40, bytes: 5_000 };

/** Marsaglia's mulberry32: small, fast, and the same numbers on every machine. */
export function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Makes the events of a conversation with tools: the same ones for the same seed, with times just before now. */
export class Payloads {
  readonly #random: () => number;
  readonly #prefix: string;
  #count = 0;

  constructor(seed: number) {
    this.#random = randomNumbers(seed);
    this.#prefix = seed.toString(36);
  }

  /** @param stateDelta what each event changes, by its number. */
  events(count: number, stateDelta: (i: number) => Record<string, unknown> = () => ({})): Event[] {
    return Array.from({ length: count }, (_, i) => this.#event(stateDelta(i)));
  }

  text(bytes: number): string {
    const words: string[] = [];
    for (let length = 0; length < bytes;) {
      const word = WORDS[Math.floor(this.#random() * WORDS.length)] ?? '';
      words.push(word);
      length += word.length + 1;
    }
    return words.join(' ').slice(0, bytes);
  }

  #event(stateDelta: Record<string, unknown>): Event {
    const number = ++this.#count;
    const id = `${this.#prefix}-${number.toString(36)}`;
    return createEvent({
      id,
      invocationId: `e-${this.#prefix}-${Math.floor(number / 6)}`,
      ...this.#content(number, id),
      actions: { stateDelta, artifactDelta: {}, requestedAuthConfigs: {}, requestedToolConfirmations: {} },
      timestamp: Date.now(),
    });
  }

  /** Questions, function calls, their responses and answers alternate. */
  #content(number: number, id: string): Pick<Event, 'author' | 'content' | 'usageMetadata'> {
    const usageMetadata = {
      promptTokenCount: 1_800 + number,
      candidatesTokenCount: 64,
      totalTokenCount: 1_864 + number,
    };
    switch (number % 4) {
      case 0:
        return { author: 'user', content: { role: 'user', parts: [{ text: this.text(this.#size(number, 80)) }] } };
      case 1: {
        const args = { city: 'Lisbon', nights: number % 9, guests: [{ name: 'Ada', age: 36 }], note: this.text(60) };
        const parts = [{ functionCall: { id: `call-${id}`, name: 'search_hotels', args } }];
        return { author: 'travel_agent', content: { role: 'model', parts }, usageMetadata };
      }
      case 2: {
        const hotels = [{ hotel: 'Tejo', price: 120.5, free: true, text: this.text(this.#size(number, 170)) }];
        const response = { status: 'ok', hotels };
        const parts = [{ functionResponse: { id: `call-${id}`, name: 'search_hotels', response } }];
        return { author: 'travel_agent', content: { role: 'user', parts } };
      }
      default: {
        const parts = [{ text: this.text(this.#size(number, 100)) }];
        return { author: 'travel_agent', content: { role: 'model', parts }, usageMetadata };
      }
    }
  }

  #size(number: number, usual: number): number {
    if (number % FEW_LARGE.every === FEW_LARGE.every / 2) return FEW_LARGE.bytes;
    if (number % SOME_MEDIUM.every === SOME_MEDIUM.every / 2) return SOME_MEDIUM.bytes;
    return usual + Math.floor(this.#random() * usual);
  }
}
