import fc from 'fast-check';
import { InvalidKeyError } from '../../src/model/errors.js';
import {
  checkKeys,
  checkedSessionKey,
  isIncomplete,
  isStorable,
  sessionIdentity,
  type SessionKey,
} from '../../src/model/keys.js';
import { expectOfRandom } from '../support/random.js';

const LENGTHS = { appName: 128, userId: 191, sessionId: 191, eventId: 191, stateKey: 255 };
const KEY: SessionKey = { appName: 'app', userId: 'ada', sessionId: 's1' };

/** As a caller without types may give it. */
const checkAny = (keys: Record<string, unknown>) => checkKeys(keys);

describe.each(Object.entries(LENGTHS))('the limits of %s', (kind, longest) => {
  test.each(['a', 'é', '表', '😀'])('D7 are counted in characters, such as %s', (character) => {
    expect(() => checkKeys({ [kind]: character.repeat(longest) })).not.toThrow();
    expect(() => checkKeys({ [kind]: character.repeat(longest + 1) })).toThrow(`is longer than ${longest} characters`);
  });

  test('D7 a combining accent is a character of its own', () => {
    expect(() => checkKeys({ [kind]: 'e\u0301'.repeat(longest / 2 + 1) })).toThrow(InvalidKeyError);
  });

  test('D7 a pair across the limit counts as one', () => {
    expect(() => checkKeys({ [kind]: `${'a'.repeat(longest - 1)}😀` })).not.toThrow();
    expect(() => checkKeys({ [kind]: `${'a'.repeat(longest)}😀` })).toThrow(InvalidKeyError);
  });
});

test.each([[''], [5], [0], [false], [{}], [['a']], [new String('a')], [Symbol('a')]])(
  'D7 refuses %p as a name',
  (value) => {
    expect(() => checkAny({ userId: value })).toThrow(InvalidKeyError);
    expect(() => checkAny({ userId: value })).toThrow('The user id must be a string of 1 to 191 characters.');
  },
);

test.each([[undefined], [null]])("D7 a name that is %p is refused in the words of ADK's own service", (value) => {
  expect(() => checkAny({ ...KEY, sessionId: value })).toThrow(InvalidKeyError);
  expect(() => checkAny({ ...KEY, sessionId: value })).toThrow(
    `Value for AdkSession.sessionId is required, '${String(value)}' found`,
  );
});

test('D7 a missing id of an event is not said to be missing in a session', () => {
  expect(() => checkAny({ ...KEY, eventId: undefined })).toThrow(
    'The event id must be a string of 1 to 191 characters.',
  );
});

describe('isStorable', () => {
  test('D7 refuses NUL and halves of surrogate pairs, wherever they are', () => {
    const texts = ['\0', 'a\0', '\0a', '\ud83d', '\ude00', 'a\ud83d', '\ude00\ud83d', '😀\ude00', '\ud83d😀'];
    expect(texts.filter(isStorable)).toEqual([]);
    expect(() => checkKeys({ stateKey: 'a\ud83d' })).toThrow('half of a surrogate pair');
    expect(() => checkKeys({ stateKey: 'a\0' })).toThrow('NUL');
  });

  test('D7 accepts every other text, including whole pairs and unusual characters', () => {
    const texts = [
      '',
      ' ',
      '\u0001',
      '\x7f',
      '\ufeff',
      '\ufffd',
      '\uffff',
      '\ud7ff',
      '\ue000',
      '😀',
      '\u{10ffff}',
      '__proto__',
    ];
    expect(texts.filter(isStorable)).toEqual(texts);
  });

  test('D7 is whether UTF-8 gives a random text back, but for NUL', async () => {
    const units = fc.array(fc.oneof(fc.nat(0xffff), fc.integer({ min: 0xd7ff, max: 0xe000 })), { maxLength: 4 });
    await expectOfRandom('texts of UTF-8', units, (codes) => {
      const text = String.fromCharCode(...codes);
      expect(isStorable(text)).toBe(Buffer.from(text).toString() === text && !text.includes('\0'));
    });
  });
});

describe('the keys of one row', () => {
  /** All four names filled up, with n characters of four bytes; the others have three. */
  function filled(fourBytes: number) {
    const characters = [...Array<string>(fourBytes).fill('😀'), ...Array<string>(765 - fourBytes).fill('表')];
    const take = (kind: keyof typeof LENGTHS) => characters.splice(0, LENGTHS[kind]).join('');
    return {
      appName: take('appName'),
      userId: take('userId'),
      sessionId: take('sessionId'),
      stateKey: take('stateKey'),
    };
  }

  test('D7 have 2,600 bytes of UTF-8 together, and not one more', () => {
    const [fits, tooLong] = [filled(305), filled(306)];
    expect([fits, tooLong].map((keys) => Buffer.byteLength(Object.values(keys).join('')))).toEqual([2_600, 2_601]);
    expect(() => checkKeys(fits)).not.toThrow();
    expect(() => checkKeys(tooLong)).toThrow(
      new InvalidKeyError(
        'The app name, user id, session id, state key together are longer than 2600 bytes of UTF-8; shorten one of them.',
      ),
    );
  });
});

describe('checkedSessionKey', () => {
  test('D7 has the three names and nothing else of what it was given', () => {
    const request = { ...KEY, state: {}, eventId: '' };
    expect(checkedSessionKey(request)).toEqual(KEY);
    expect(Object.keys(checkedSessionKey(request))).toEqual(['appName', 'userId', 'sessionId']);
  });

  test.each(['appName', 'userId', 'sessionId'])('D7 refuses a key without its %s', (kind) => {
    expect(() => checkedSessionKey({ ...KEY, [kind]: '' })).toThrow(InvalidKeyError);
  });
});

test('A2 a key is incomplete if a name is missing, however wrong the others are', () => {
  for (const kind of Object.keys(KEY)) {
    expect(isIncomplete({ ...KEY, [kind]: undefined })).toBe(true);
    expect(isIncomplete({ ...KEY, [kind]: null })).toBe(true);
    expect(isIncomplete({ ...KEY, [kind]: '' })).toBe(false);
    expect(isIncomplete({ ...KEY, [kind]: 0 })).toBe(false);
  }
  expect(isIncomplete(KEY)).toBe(false);
});

test('D6 two sessions have one identity only if all of their names are equal', () => {
  const pairs = [':', '/', '|', ' ', ',', ''].map((separator) => [`a${separator}a`, 'a'] as const);
  for (const [long, short] of [...pairs, ['A', 'a'], ['a ', 'a'], ['\u00e1', 'a\u0301'], ['\uff41', 'a']] as const) {
    const keys = [
      { appName: long, userId: short, sessionId: short },
      { appName: short, userId: long, sessionId: short },
      { appName: short, userId: short, sessionId: long },
      { appName: short, userId: short, sessionId: short },
    ];
    expect(new Set(keys.map(sessionIdentity)).size).toBe(4);
    expect(new Set([...keys, ...keys].map(({ ...copy }) => sessionIdentity(copy))).size).toBe(4);
  }
});
