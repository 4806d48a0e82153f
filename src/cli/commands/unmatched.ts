import { SessionMaintenance } from '../../maintenance/session-maintenance.js';
import { given } from '../../model/objects.js';
import { quoted } from '../../operations/words.js';
import type { Context } from '../run.js';

/** The options that name whose sessions a command is about. */
export interface OwnerFlags {
  app?: string;
  user?: string;
}

/**
 * Notes that nothing is stored under a name: a misspelt one gives an empty result otherwise.
 *
 * @returns whether there are sessions.
 */
export async function noteUnmatched({ em, terminal }: Context, { app, user }: OwnerFlags): Promise<boolean> {
  // A dry run counts by the rows of the sessions alone.
  const { sessions } = await new SessionMaintenance(em).prune({
    ...given({ appName: app, userId: user }),
    olderThan: 0,
    includeLeased: true,
    dryRun: true,
  });
  if (sessions > 0) return true;
  const names = [app !== undefined && `app ${quoted(app)}`, user !== undefined && `user ${quoted(user)}`];
  terminal.note(`No session${['', ...names.filter((name) => name !== false)].join(' of ')} is stored.`);
  return false;
}
