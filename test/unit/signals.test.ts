import { pause } from '../../src/model/signals.js';

test('a pause that no timer can last does not end at once', async () => {
  const stop = new AbortController();
  const first = Promise.race([pause(8e15, stop.signal).then(() => 'it'), pause(20).then(() => 'a short one')]);
  expect(await first).toBe('a short one');
  stop.abort();
});
