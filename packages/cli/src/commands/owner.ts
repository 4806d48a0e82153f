import { SessionMaintenance, type OwnerOptions } from '../../../../src/index.js';
import { withoutUndefined } from '../../../../src/model/json.js';
import { quoted } from '../../../studio/src/operations/words.js';
import type { Context } from '../run.js';

/** Whose sessions a command is about. */
export const ownerOf = ({ appName, userId }: OwnerOptions) => withoutUndefined({ appName, userId });

/** Counts sessions and events, by a dry run, which reads only the rows of the sessions. */
export const countOf = ({ em }: Pick<Context, 'em'>, owner: OwnerOptions) =>
  new SessionMaintenance(em).prune({ ...ownerOf(owner), sessionsOlderThan: 0, includeLeased: true, dryRun: true });

/** Notes why a result is empty: nothing is stored under a name, which may be misspelt, or else `reason`. */
export async function noteEmpty(context: Pick<Context, 'em' | 'terminal'>, owner: OwnerOptions, reason?: string) {
  const { appName, userId } = owner;
  const isThere = reason !== undefined && (await countOf(context, owner)).done.sessions > 0;
  const names = [appName !== undefined && `app ${quoted(appName)}`, userId !== undefined && `user ${quoted(userId)}`];
  const none = `No session${['', ...names.filter((name) => name !== false)].join(' of ')} is stored.`;
  context.terminal.note(isThere ? reason : none);
}
