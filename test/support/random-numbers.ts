import { createHash } from 'node:crypto';
import { randomNumbers, type Random } from '../../packages/session-contract/src/random.js';

/** `ADK_TEST_SEED=… npx jest …` draws other random cases and numbers than the default. */
export const SEED = Number(process.env['ADK_TEST_SEED'] ?? 1);

/** Numbers with which a test chooses moments and amounts: the same ones for the same text. */
export const randomOf = (text: string): Random =>
  randomNumbers(createHash('sha256').update(`${SEED} ${text}`).digest().readUInt32BE());
