import fc from 'fast-check';
import { InvalidKeyError } from '../../src/model/errors.js';
import {
  SCOPES,
  byScope,
  checkStateKey,
  isTemporary,
  prefixed,
  scopeOf,
  setOwn,
  type StateEntry,
} from '../../src/model/state.js';
import { expectOfRandom } from '../support/random.js';

const text = fc.string({ unit: 'binary' });

/** Any text, often with one or two prefixes. */
const name = fc
  .tuple(fc.array(fc.constantFrom('app:', 'user:', 'temp:', 'app', ':'), { maxLength: 2 }), text)
  .map(([prefixes, rest]) => prefixes.join('') + rest);

const entryOf = (key: string): StateEntry => ({ key, json: '1', eventId: null });

describe('scopeOf and prefixed', () => {
  test('B1 a random key that is split and put together again is the same', () =>
    expectOfRandom('names of scopes', name, (whole) => {
      const { scope, key } = scopeOf(whole);
      expect(prefixed(scope, key)).toBe(whole);
    }));

  test('B1 a random stored key comes back with its scope', () =>
    expectOfRandom('keys of scopes', fc.tuple(fc.constantFrom('user', 'app'), name), ([scope, key]) => {
      expect(scopeOf(prefixed(scope, key))).toEqual({ scope, key });
    }));

  test.each([
    ['app:user:a', 'app', 'user:a'],
    ['user:app:a', 'user', 'app:a'],
    ['user:user:a', 'user', 'user:a'],
    ['app:', 'app', ''],
    ['app', 'session', 'app'],
    ['App:a', 'session', 'App:a'],
    [' app:a', 'session', ' app:a'],
    ['temp:app:a', 'session', 'temp:app:a'],
    ['app:__proto__', 'app', '__proto__'],
  ])('B1 %j is of the %s, under %j', (whole, scope, key) => {
    expect(scopeOf(whole)).toEqual({ scope, key });
  });
});

test('A7 temporary is what begins with temp:', () => {
  const names = ['temp:a', 'temp:', 'temp', 'Temp:a', 'app:temp:a', 'user:temp:a', ' temp:a'];
  expect(names.filter(isTemporary)).toEqual(['temp:a', 'temp:']);
});

describe('setOwn', () => {
  test('B5 sets __proto__ and constructor as own keys, which JSON shows', () => {
    const target = {};
    for (const key of ['__proto__', 'constructor', 'toString']) setOwn(target, key, { polluted: key });
    expect(Object.keys(target)).toEqual(['__proto__', 'constructor', 'toString']);
    expect(Object.getPrototypeOf(target)).toBe(Object.prototype);
    expect(JSON.stringify(target)).toContain('"__proto__":{"polluted":"__proto__"}');
    expect({}).not.toHaveProperty('polluted');
  });

  test('what it has set can be overwritten and deleted, as after an assignment', () => {
    const target: Record<string, unknown> = {};
    setOwn(target, 'a', 1);
    expect(Object.getOwnPropertyDescriptor(target, 'a')).toEqual(Object.getOwnPropertyDescriptor({ a: 1 }, 'a'));
  });

  test('B5 a setter of the prototype is not called', () => {
    const set = jest.fn();
    const target = Object.create(Object.defineProperty({}, 'a', { set, configurable: true })) as { a?: unknown };
    setOwn(target, 'a', 1);
    expect(set).not.toHaveBeenCalled();
    expect(target.a).toBe(1);
  });
});

describe('byScope', () => {
  const keysOf = (entries: readonly StateEntry[]) => entries.map(({ key }) => key);

  test('B1 the entries of each scope are without their prefix, and complete, also of random keys', async () => {
    const entry = { json: '{"a":1}', eventId: 'e' };
    expect(byScope([{ key: 'user:a', ...entry }])).toEqual({ session: [], user: [{ key: 'a', ...entry }], app: [] });
    await expectOfRandom('entries by scope', fc.uniqueArray(name), (names) => {
      const entries = byScope(names.map(entryOf));
      const found = SCOPES.flatMap((scope) => keysOf(entries[scope]).map((key) => prefixed(scope, key)));
      expect(found.sort()).toEqual([...names].sort());
    });
  });

  test('two transactions that write the same random keys lock them in the same order, however they were given', async () => {
    const names = fc.uniqueArray(name, { minLength: 2 });
    const shuffled = names.chain((all) =>
      fc.tuple(fc.constant(all), fc.shuffledSubarray(all, { minLength: all.length })),
    );
    await expectOfRandom('order of entries', shuffled, ([one, other]) => {
      expect(byScope(one.map(entryOf))).toEqual(byScope(other.map(entryOf)));
    });
  });

  test('the order is that of the code units, with no locale in it', () => {
    const names = ['é', 'z', 'a10', 'a2', 'Z', '😀', '\uffff', '__proto__', 'a'];
    const ordered = ['Z', '__proto__', 'a', 'a10', 'a2', 'z', 'é', '😀', '\uffff'];
    for (const prefix of ['', 'user:', 'app:']) {
      const { scope } = scopeOf(prefix);
      expect(keysOf(byScope(names.map((key) => entryOf(prefix + key)))[scope])).toEqual(ordered);
    }
  });

  test('the objects that were given are not changed', () => {
    const given = [entryOf('app:b'), entryOf('app:a')];
    byScope(given);
    expect(given).toEqual([entryOf('app:b'), entryOf('app:a')]);
  });
});

describe('checkStateKey', () => {
  const session = { appName: 'app', userId: 'ada', sessionId: 's1' };

  test.each(['', 'user:', 'app:'])('D7 after %j a key has 1 to 255 characters, the prefix not counted', (prefix) => {
    expect(() => checkStateKey(session, prefix + '😀'.repeat(255))).not.toThrow();
    expect(() => checkStateKey(session, prefix + '😀'.repeat(256))).toThrow(InvalidKeyError);
    expect(() => checkStateKey(session, prefix)).toThrow(InvalidKeyError);
  });

  test('D7 only the keys of its own row count: an app has no user, and a user no session', () => {
    const [none, long] = [{ ...session, userId: '', sessionId: '' }, '😀'.repeat(191)];
    expect(() => checkStateKey(none, 'app:a')).not.toThrow();
    expect(() => checkStateKey(none, 'user:a')).toThrow('user id');
    expect(() => checkStateKey({ ...none, userId: 'ada' }, 'user:a')).not.toThrow();
    expect(() => checkStateKey({ ...none, userId: 'ada' }, 'a')).toThrow('session id');

    const longest = { appName: '😀'.repeat(128), userId: long, sessionId: long };
    expect(() => checkStateKey(longest, `app:${'😀'.repeat(255)}`)).not.toThrow();
    expect(() => checkStateKey(longest, `user:${'😀'.repeat(255)}`)).not.toThrow();
    expect(() => checkStateKey(longest, '😀'.repeat(255))).toThrow('2600 bytes');
  });
});
