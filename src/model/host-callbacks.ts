/**
 * Calls a host's function that reports something. The call whose work it reports may be committed, so errors of the function are
 * ignored, and a rejected promise does not end the process.
 */
export function callHost<Args extends unknown[]>(
  callback: ((...args: Args) => unknown) | undefined,
  ...args: Args
): void {
  try {
    Promise.resolve(callback?.(...args)).catch(() => undefined);
  } catch {
    // There is nobody to report an error of the reporting function to.
  }
}
