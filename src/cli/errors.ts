/** The command line was wrong: the process ends with 2, and nothing was done. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** A command could not do all that was asked, or was told not to: it has said why, or the message does. The process ends with 1. */
export class Unfinished extends Error {
  override readonly name = 'Unfinished';
}
