import { AdkMikroOrmError } from '../../src/index.js';

/** The codes of the errors that a random operation may end with, since others came first. Operations without an entry succeed. */
export type Refusals<Operation extends string> = Readonly<Partial<Record<Operation, readonly string[]>>>;

/** @throws the error itself, unless the operation may be refused with it. */
export function expectRefusal<Operation extends string>(
  refusals: Refusals<Operation>,
  operation: Operation,
  error: unknown,
): void {
  if (!(error instanceof AdkMikroOrmError && refusals[operation]?.includes(error.code))) throw error;
}
