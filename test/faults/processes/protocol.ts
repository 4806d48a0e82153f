import type { DatabaseName } from '../../support/servers.js';
import type { Commands } from './worker.js';

/** A message of the parent to `worker.ts`. */
export interface Call<Command extends keyof Commands> {
  call: number;
  command: Command;
  request: Parameters<Commands[Command]>[0];
}

/** A message of `worker.ts` to its parent. */
export type Message =
  | { ready: true }
  | { acknowledged: Acknowledgement }
  | { call: number; result?: unknown }
  | { call: number; error: { code?: string; message: string } };

/** An event whose append has resolved. */
export interface Acknowledgement {
  name: DatabaseName;
  sessionId: string;
  id: string;
}

/** An artifact that takes several rows and contains its id. */
export const contentOf = (id: string) => ({ text: `${id} ${'ü'.repeat(600_000)}` });

/** All processes work for one user, so that all of them write to the same rows of user and app. */
export const keyOf = (sessionId: string) => ({ appName: 'app', userId: 'user', sessionId });
