import { createEvent } from '@google/adk';
import fc from 'fast-check';
import { isDeepStrictEqual } from 'node:util';
import { runInNewContext } from 'node:vm';
import { UnserializableValueError } from '../../src/model/errors.js';
import { decode, decodeEvent, encode } from '../../src/model/json.js';
import { expectOfRandom } from '../support/random.js';

/** The path of what is refused, and what is said of it. */
function refusalOf(value: unknown, path = 'output'): { path: string; message: string } {
  try {
    encode(value, path);
  } catch (error) {
    if (error instanceof UnserializableValueError) return { path: error.path, message: error.message };
    throw error;
  }
  throw new Error('It was accepted');
}

/** Values of another realm, whose classes are not this one's: jest's own, a `vm` context, a worker's messages. */
const elsewhere = (code: string): unknown => runInNewContext(code);

const text = fc.string({
  unit: fc.oneof(fc.string({ unit: 'binary', maxLength: 1 }), fc.constantFrom('\ud800', '\udfff', '\0', '"', '\\')),
});
const key = fc.oneof(text, fc.constantFrom('__proto__', 'constructor', 'toString', '0', '1', ''));

/** What JSON can carry: without -0, which it makes 0. */
const json = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    text,
    fc.boolean(),
    fc.constant(null),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((n) => n + 0),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.array(fc.tuple(key, tie('value')), { maxLength: 4 }).map(Object.fromEntries),
  ),
})).value;

describe('what comes back', () => {
  test('C1 is what was encoded, of random values that JSON can carry', () =>
    expectOfRandom(
      'JSON that comes back',
      json,
      (value) => {
        const encoded = encode(value, 'output');
        expect(encoded.value).toBe(value);
        expect(isDeepStrictEqual(decode(encoded.json), { value })).toBe(true);
        // The order of the keys, too.
        expect(JSON.stringify(decode(encoded.json)?.value)).toBe(encoded.json);
      },
      { runs: 500 },
    ));

  test('I6 is what was encoded, or nothing: of random values of any kind', async () => {
    const anything = fc.anything({
      withBigInt: true,
      withBoxedValues: true,
      withDate: true,
      withMap: true,
      withNullPrototype: true,
      withObjectString: true,
      withSet: true,
      withSparseArray: true,
      withTypedArray: true,
    });
    const seen = { accepted: 0, refused: 0 };
    await expectOfRandom(
      'values that come back',
      anything,
      (value) => {
        let encoded;
        try {
          encoded = encode(value, 'output');
          seen.accepted++;
        } catch (error) {
          expect(error).toBeInstanceOf(UnserializableValueError);
          seen.refused++;
          return;
        }
        // A property that is undefined is no data, and the class of an object is lost; toEqual asks for neither.
        expect(decode(encoded.json)?.value).toEqual(encoded.value);
        if (encoded.value !== value) expect(encoded.json).toMatch(/\d{4}-\d\d-\d\dT[\d:.]+Z/);
      },
      { runs: 2_000 },
    );
    expect(seen.accepted).toBeGreaterThan(100);
    expect(seen.refused).toBeGreaterThan(100);
  });

  test('B5 has __proto__ as a key of its own, at any depth', () => {
    const value: unknown = JSON.parse('{"__proto__":{"__proto__":[{"constructor":1}]}}');
    const back = decode(encode(value, 'output').json)?.value;
    expect(Object.getOwnPropertyDescriptor(back, '__proto__')?.value).toEqual(
      Object.getOwnPropertyDescriptor(value, '__proto__')?.value,
    );
    expect(Object.getPrototypeOf(back)).toBe(Object.prototype);
  });

  test('C2 has no properties that are undefined, not enumerable or named by symbols, nor inherited ones', () => {
    const value = Object.create({ inherited: NaN }, { hidden: { value: NaN } }) as object;
    Object.assign(value, { kept: 1, missing: undefined, [Symbol('x')]: NaN });
    expect(encode(value, 'output')).toEqual({ json: '{"kept":1}', value });
  });

  test('C2 becomes a plain object if it was of a class', () => {
    class Order {
      readonly items = [1];
      get [Symbol.toStringTag]() {
        return 'Order';
      }
    }
    expect(encode(new Order(), 'output').json).toBe('{"items":[1]}');
    expect(encode(Object.create(null), 'output').json).toBe('{}');
    expect(encode(elsewhere('({ a: [{}, null, "x", new Date(5)] })'), 'output').json).toBe(
      '{"a":[{},null,"x","1970-01-01T00:00:00.005Z"]}',
    );
  });
});

describe('what has a toJSON', () => {
  test('I6 is stored as what that gives, and the value says so', () => {
    const date = new Date(5);
    expect(encode(date, 'at')).toEqual({ json: JSON.stringify(date), value: date.toJSON() });
    const value = { list: [{ at: date }], url: new URL('http://a/'), same: { a: 1 } };
    const stored = { list: [{ at: date.toJSON() }], url: 'http://a/', same: { a: 1 } };
    expect(encode(value, 'output')).toEqual({ json: JSON.stringify(stored), value: stored });
    expect(value.list[0]?.at).toBe(date);
  });

  test('I6 may have it from its prototype, as a function, and on an array', () => {
    const list = Object.assign([1, 2], { toJSON: () => 'list' });
    expect(encode({ list, own: Object.create({ toJSON: () => 'inherited' }) }, 'output').value).toEqual({
      list: 'list',
      own: 'inherited',
    });
    // A property of that name that is no function is data.
    expect(encode({ toJSON: 'x' }, 'output').json).toBe('{"toJSON":"x"}');
  });

  test('C2 a Map or Set with a toJSON of its own is what that gives', () => {
    const map = Object.assign(new Map([['a', 1]]), { toJSON: () => [['a', 1]] });
    expect(encode({ map }, 'output').value).toEqual({ map: [['a', 1]] });
  });

  test.each([
    ['undefined', () => undefined, 'output.a', 'undefined after its toJSON'],
    ['NaN inside', () => ({ b: [NaN] }), 'output.a.b[0]', 'NaN'],
    ['a Map', () => new Map(), 'output.a', 'a Map'],
    // JSON asks for the toJSON of a value once, and makes {} of this.
    ['a Date', () => new Date(5), 'output.a', 'a Date'],
    ['a BigInt', () => 5n, 'output.a', 'a bigint'],
  ])('C2 is refused where that gives %s', (_what, toJSON, path, said) => {
    expect(refusalOf({ a: { toJSON } })).toMatchObject({
      path,
      message: expect.stringContaining(`${path} is ${said},`),
    });
  });

  test('C2 may give itself, or an object with a toJSON of its own, which JSON does not ask again', () => {
    const itself = { a: 1, toJSON: () => itself };
    const other = { toJSON: () => ({ b: 2, toJSON: () => NaN }) };
    for (const value of [itself, other]) expect(() => encode(value, 'output')).toThrow(UnserializableValueError);
  });

  test('C2 an invalid Date is refused, also of another realm; a null of another toJSON is a value', () => {
    for (const date of [new Date(NaN), elsewhere('new Date(NaN)')]) {
      expect(refusalOf([date])).toMatchObject({
        path: 'output[0]',
        message: expect.stringContaining('an invalid Date'),
      });
    }
    expect(encode([{ toJSON: () => null }], 'output').value).toEqual([null]);
  });
});

describe('what is refused', () => {
  const VALUES: Record<string, [() => unknown, said: string]> = {
    NaN: [() => NaN, 'NaN'],
    Infinity: [() => Infinity, 'Infinity'],
    '-Infinity': [() => -Infinity, '-Infinity'],
    '-0': [() => -0, '-0'],
    'a BigInt': [() => 0n, 'a bigint'],
    'a symbol': [() => Symbol.iterator, 'a symbol'],
    'a function': [() => Map, 'a function'],
    'a Map in a class': [() => new (class extends Map {})(), 'a Map'],
    'a Map with properties': [() => Object.assign(new Map(), { a: 1 }), 'a Map'],
    'a WeakMap': [() => new WeakMap(), 'a WeakMap'],
    'a Promise': [() => Promise.resolve(), 'a Promise'],
    'a RegExp': [() => /x/, 'a RegExp'],
    'an Error with properties': [() => Object.assign(new Error('x'), { code: 'E' }), 'a Error'],
    'a boxed string': [() => new String('ab'), 'a String'],
    'a boxed number': [() => Object.assign(new Number(1), { unit: 'EUR' }), 'a Number'],
    'a boxed boolean': [() => new Boolean(false), 'a Boolean'],
    'a boxed BigInt': [() => Object(1n) as unknown, 'a BigInt'],
    'a Buffer, though it has a toJSON': [() => Buffer.from('a'), 'a Uint8Array'],
    'an empty typed array': [() => new Float64Array(), 'a Float64Array'],
    'a DataView': [() => new DataView(new ArrayBuffer(1)), 'a DataView'],
    'an ArrayBuffer': [() => new ArrayBuffer(1), 'a ArrayBuffer'],
    URLSearchParams: [() => new URLSearchParams('a=1'), 'a URLSearchParams'],
    'a Blob': [() => new Blob(['a']), 'a Blob'],
    'a generator': [() => (function* () {})(), 'a Generator'],
    'the arguments of a function': [() => elsewhere('(function () { return arguments; })(1)'), 'a Arguments'],
  };

  test.each(Object.entries(VALUES))('C2 I6 %s, with its path, wherever it is', (_what, [make, said]) => {
    expect(refusalOf(make())).toMatchObject({ path: 'output' });
    for (const [value, path] of [
      [{ a: [0, { b: make() }] }, 'output.a[1].b'],
      [[[make()]], 'output[0][0]'],
      [{ date: new Date(0), later: make() }, 'output.later'],
      [{ toJSON: () => ({ made: make() }) }, 'output.made'],
    ] as const) {
      expect(refusalOf(value)).toEqual({
        path,
        message: `${path} is ${said}, which JSON cannot carry; nothing was written. Store a plain value instead.`,
      });
    }
  });

  test.each([
    ['new Map([[1, 2]])', 'a Map'],
    ['new Set()', 'a Set'],
    ['new Uint8Array(1)', 'a Uint8Array'],
    ['new ArrayBuffer(1)', 'a ArrayBuffer'],
    ['new Error("x")', 'a Error'],
    ['new String("x")', 'a String'],
    ['/x/', 'a RegExp'],
    ['Promise.resolve()', 'a Promise'],
    ['[,]', 'undefined'],
    ['() => 1', 'a function'],
  ])('C2 %s of another realm', (code, said) => {
    expect(refusalOf({ a: elsewhere(code) }).message).toContain(` is ${said},`);
  });

  test('I6 undefined in an array, also as an empty place', () => {
    expect(refusalOf([1, undefined])).toMatchObject({ path: 'output[1]' });

    expect(refusalOf({ a: [1, , 3] })).toMatchObject({ path: 'output.a[1]' });
    expect(refusalOf(new Array(3))).toMatchObject({ path: 'output[0]' });
    // However large: it ends at the first.
    expect(refusalOf(Object.assign([1], { length: 4_000_000_000 }))).toMatchObject({ path: 'output[1]' });
  });

  test('I6 undefined itself', () => {
    expect(refusalOf(undefined)).toMatchObject({ path: 'output', message: expect.stringContaining('undefined') });
  });

  test('C2 the path of an event begins with its field, and takes keys as they are', () => {
    expect(refusalOf({ actions: { stateDelta: { 'a.b': [NaN] } } }, '').path).toBe('actions.stateDelta.a.b[0]');
    expect(refusalOf(JSON.parse('{"__proto__":{"a":[0,-0]}}'), 'state').path).toBe('state.__proto__.a[1]');
  });
});

describe('cycles', () => {
  const loop: Record<string, unknown> = { a: [{}] };
  (loop['a'] as unknown[])[1] = loop;
  const array: unknown[] = [];
  array[0] = array;
  const converting = { toJSON: () => ({ back: converting }) };

  test.each([
    [loop, 'output.a[1]'],
    [array, 'output[0]'],
    [{ deep: [loop] }, 'output.deep[0].a[1]'],
    [converting, 'output.back'],
  ])('C2 are refused with the path where they close: %#', (value, path) => {
    expect(refusalOf(value)).toMatchObject({ path, message: expect.stringContaining('a cycle') });
  });

  test('C2 the same object in several places is none, also beside what has a toJSON', () => {
    const shared = { at: new Date(0), list: [1] };
    const value = { a: shared, b: [shared, shared], c: { c: shared } };
    expect(encode(value, 'output').json).toBe(JSON.stringify(value));
  });
});

describe('deep values', () => {
  const nested = (depth: number) => {
    let value: unknown = 1;
    for (let i = 0; i < depth; i++) value = i % 2 ? [value] : { a: value };
    return value;
  };

  test('C1 a thousand levels come back', () => {
    const { json } = encode(nested(1_000), 'output');
    expect(isDeepStrictEqual(decode(json)?.value, nested(1_000))).toBe(true);
  });

  test.each([1_001, 100_000])('C2 %i levels are refused with their path, and are no RangeError', (depth) => {
    expect(refusalOf(nested(depth))).toMatchObject({
      path: expect.stringMatching(/^output\W/),
      message: expect.stringContaining('too deeply'),
    });
  });

  test('A11 an error of a getter or a toJSON is thrown as it is', () => {
    const error = new Error('of the host');
    const thrower = () => {
      throw error;
    };
    expect(() => encode(Object.defineProperty({}, 'a', { get: thrower, enumerable: true }), 'output')).toThrow(error);
    expect(() => encode({ toJSON: thrower }, 'output')).toThrow(error);
  });
});

describe('decode and decodeEvent', () => {
  test.each(['', ' ', '{', '{"a":1', 'undefined', 'NaN', "{'a':1}", '{"a":1}}', '\0'])(
    'I1 %j is no JSON, and no event',
    (damaged) => {
      expect(decode(damaged)).toBeUndefined();
      expect(decodeEvent(damaged)).toBeUndefined();
    },
  );

  test('I1 null, false, 0 and the empty string are values, apart from what cannot be read', () => {
    for (const value of [null, false, 0, '']) expect(decode(JSON.stringify(value))).toEqual({ value });
  });

  test.each(['null', '[]', '[{"id":"e"}]', '1', '"e"', 'true'])('I1 %s is JSON, and no event', (damaged) => {
    expect(decode(damaged)).toBeDefined();
    expect(decodeEvent(damaged)).toBeUndefined();
  });

  test('I1 an event without content is none', () => {
    expect(decodeEvent(undefined)).toBeUndefined();
  });

  test("C1 an event comes back with ADK's brand, which is not stored", () => {
    const event = createEvent({ author: 'a', output: JSON.parse('{"__proto__":1}') });
    const { json } = encode(event, '');
    const back = decodeEvent(json);
    expect(back).toEqual(event);
    expect(back).toHaveProperty([Symbol.for('google.adk.event')], true);
    expect(JSON.parse(json)).not.toHaveProperty([Symbol.for('google.adk.event')]);
    expect(encode(back, '').json).toBe(json);
  });
});
