/**
 * Calls a host's function that is only to hear of something. What it throws, or a promise of it rejects with, is no part of
 * the call that reports, whose work may be committed; and no rejection may end the process.
 */
export function callHost<Args extends unknown[]>(
  callback: ((...args: Args) => unknown) | undefined,
  ...args: Args
): void {
  try {
    Promise.resolve(callback?.(...args)).catch(() => undefined);
  } catch {
    // Errors of the host's are the host's to look for: there is nobody to report them to.
  }
}
