import { columns } from '../../src/database/dialects/postgresql-append.js';

test('the elements of an array have a backslash before quotes and backslashes, and before nothing else', () => {
  const texts = ['plain', '{"a":"b\\n"}', 'a\nb', '\t"', '\u0001\\', 'ü ☃ 😀', '\u2028', '\u007f'];
  const elements = texts.map((text) => `"${text.replace(/["\\]/g, '\\$&')}"`);
  expect(
    columns(
      1,
      texts.map((text) => [text]),
    ),
  ).toEqual([`{${elements.join(',')}}`]);
});
