import { decode, encode } from '../../src/model/json.js';
import { decodeExactly } from '../../packages/import/src/exact-json.js';
import { randomNumbers, randomValue } from '../../packages/session-contract/src/random.js';

describe('decodeExactly', () => {
  test.each([
    ['1187654321098765433', 1187654321098765433n],
    ['-1187654321098765433', -1187654321098765433n],
    // One more than the last one of which no two are the same number.
    ['9007199254740993', 9007199254740993n],
    // It would be written as 1152921504606847000.
    ['1152921504606846976', 1152921504606846976n],
    ['{"a":[{"b":1187654321098765433}]}', { a: [{ b: 1187654321098765433n }] }],
    [' [ 1187654321098765433 , 1 ] ', [1187654321098765433n, 1]],
    ['\uFEFF{"a":1187654321098765433}', { a: 1187654321098765433n }],
    ['{"\\"1187654321098765431":1187654321098765433}', { '"1187654321098765431': 1187654321098765433n }],
  ])('L2 an integer that a number does not hold is a bigint: %s', (json, value) => {
    expect(decodeExactly(json)).toEqual({ value });
  });

  test.each([
    '9007199254740991',
    '-9007199254740991',
    '100000000000000000000',
    '1187654321098765300',
    '"1187654321098765433"',
    '{"1187654321098765433":"\\\\"}',
    '["\\"1187654321098765433\\"","1187654321098765433"]',
    '0.1187654321098765433',
    '1187654321098765433e1',
    '1.5e300',
  ])('L2 what a number or a text holds is as JSON.parse has it: %s', (json) => {
    expect(decodeExactly(json)).toEqual({ value: JSON.parse(json) });
  });

  test('L2 of any value that JSON.stringify has written', () => {
    const random = randomNumbers();
    for (let i = 0; i < 500; i++) {
      const json = JSON.stringify(randomValue(random));
      expect(JSON.stringify(decodeExactly(json)?.value)).toBe(json);
    }
  });

  test('L2 __proto__ is a key of its own beside a long integer', () => {
    const read = decodeExactly('{"__proto__":{"a":1187654321098765433}}')?.value;
    expect(Object.keys(read as object)).toEqual(['__proto__']);
    expect(() => encode(read, 'state')).toThrow('state.__proto__.a is a bigint');
  });

  test.each(['1187654321098765433,', '{"a":01187654321098765433}', '', '"1187654321098765433'])(
    'L2 %j is no JSON',
    (json) => {
      expect(decode(json)).toBeUndefined();
      expect(decodeExactly(json)).toBeUndefined();
    },
  );
});
