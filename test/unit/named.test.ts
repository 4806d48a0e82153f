import { named } from '../../src/database/sql/values.js';

test('a value is bound wherever its name occurs, in the order of the text', () => {
  const update = named('update t set a = :a, b = :b where a > :a and c = :c');
  expect(update({ c: 3, b: null, a: 1 })).toEqual(['update t set a = ?, b = ? where a > ? and c = ?', [1, null, 1, 3]]);
});

test('quoted texts, quoted identifiers and casts hold no names', () => {
  const text: string = `select ':a', "b:c", \`d:e\`, (:list::text[])[1], 'it''s :f' from "x:y" where z = :z`;
  expect(named(text)({ list: '{}', z: 1 })).toEqual([text.replace(':list', '?').replace(':z', '?'), ['{}', 1]]);
});

test('a statement without the value of a name is refused', () => {
  const select = named('select :one, :two');
  // @ts-expect-error TypeScript finds it as well.
  expect(() => select({ one: 1 })).toThrow('no value for :two');
  const table: string = ':two';
  expect(() => named(`select :one, ${table}`)({ one: 1 })).toThrow('no value for :two');
});
