/** The command line was wrong: the process ends with 2, and nothing was done. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
