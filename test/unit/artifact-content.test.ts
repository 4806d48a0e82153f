import { isCanonical, refuseLong } from '../../src/artifacts/artifact-content.js';
import { ArtifactTooLargeError, MikroOrmArtifactService } from '../../src/index.js';
import { randomOf } from '../support/random-numbers.js';

const CHARACTERS = ['A', 'Q', 'w', '+', '/', '-', '_', '=', '==', ' ', '\n', '*', 'ä', '\0'];

test('base64 is recognised that encoding would give back', () => {
  const random = randomOf('base64');
  const seen = { true: 0, false: 0 };
  for (let n = 0; n < 200_000; n++) {
    // Mostly one that is right, with one or two changes.
    let text = Buffer.from(Array.from({ length: random(9) }, () => random(256))).toString('base64');
    for (let changes = random(3); changes > 0; changes--) {
      const at = random(text.length + 1);
      text = text.slice(0, at) + CHARACTERS[random(CHARACTERS.length)]! + text.slice(at + random(2));
    }
    const bytes = Buffer.from(text, 'base64');
    const expected = bytes.toString('base64') === text;
    seen[`${expected}`]++;
    if (isCanonical(text, bytes) !== expected) throw new Error(JSON.stringify(text));
  }
  expect(Math.min(seen.true, seen.false)).toBeGreaterThan(10_000);
});

test('P2 what is too large for a Part names the call that reads it', () => {
  const content = { of: 'inlineData', size: 2 ** 40, sha256: '', isEncoded: false } as const;
  const long = () => refuseLong({ artifact: {}, content });
  expect(long).toThrow(ArtifactTooLargeError);
  expect(long).toThrow(/Use openArtifact\.$/);
  expect(MikroOrmArtifactService.prototype).toHaveProperty('openArtifact');
});
