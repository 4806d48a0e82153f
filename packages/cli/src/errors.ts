/** The command line was wrong: the process ends with 2, and nothing was done. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** A command did not finish, or its user answered no. The command or the message says why. The process ends with 1. */
export class Unfinished extends Error {
  override readonly name = 'Unfinished';
}
