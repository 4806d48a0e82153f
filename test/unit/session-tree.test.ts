import { InvalidKeyError } from '../../src/model/errors.js';
import { deriveSessionId } from '../../src/model/session-tree.js';

describe('deriveSessionId', () => {
  test('G3 names a subagent after its parent and branch, at any depth', () => {
    expect(deriveSessionId('s1', 'research.web')).toBe('s1:sub:research.web');
    expect(deriveSessionId(deriveSessionId('s1', 'a'), 'b')).toBe('s1:sub:a:sub:b');
  });

  test('G3 a branch that does not fit is hashed, counted in code points', () => {
    const fitting = '😀'.repeat(191 - 's1:sub:'.length);
    expect(deriveSessionId('s1', fitting)).toBe(`s1:sub:${fitting}`);

    const id = deriveSessionId('s1', `${fitting}.a`);
    expect(id).toMatch(/^s1:sub:[\w-]{43}$/);
    expect(deriveSessionId('s1', `${fitting}.a`)).toBe(id);
    expect(deriveSessionId('s1', `${fitting}.b`)).not.toBe(id);
  });

  test('G3 a parent is refused when not even the hash fits', () => {
    const longest = 'x'.repeat(191 - ':sub:'.length - 43);
    const branch = 'b'.repeat(200);
    expect(deriveSessionId(longest, branch)).toHaveLength(191);
    expect(() => deriveSessionId(`${longest}x`, branch)).toThrow(InvalidKeyError);
    expect(() => deriveSessionId(`${longest}x`, branch)).toThrow(/too long to derive another/);
    expect(deriveSessionId(`${longest}x`, 'b')).toBe(`${longest}x:sub:b`);
  });

  test.each([
    ['', 'a'],
    ['x'.repeat(192), 'a'],
    ['a\0', 'a'],
    ['s1', ''],
    ['s1', 'a\0'],
    // A hash would make both halves one.
    ['s1', '\ud800'.repeat(200)],
  ])('G3 refuses what no session id may hold: %#', (parent, branch) => {
    expect(() => deriveSessionId(parent, branch)).toThrow(InvalidKeyError);
  });
});
