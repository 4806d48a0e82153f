import type { LooseEvent } from '../model/turn.js';

/**
 * Whether a Runner made the event when its run was aborted. Runners newer than `@google/adk` 2.0.0 do: they answer the calls that
 * are open, those of long-running tools included, or say with an event without content that the run was aborted.
 */
export const isAbortEvent = (event: LooseEvent): boolean => event.errorCode === 'INVOCATION_ABORTED';
