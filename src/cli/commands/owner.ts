import type { EntityManager } from '@mikro-orm/core';
import { SessionMaintenance } from '../../maintenance/session-maintenance.js';
import { given } from '../../model/objects.js';
import { quoted } from '../../operations/words.js';
import type { Terminal } from '../terminal.js';

/** The options that name whose sessions a command is about. */
export interface OwnerFlags {
  app?: string;
  user?: string;
}

/** The same, by the names that the package has for them. */
export const ownerOf = ({ app, user }: OwnerFlags) => given({ appName: app, userId: user });

/** Counts sessions and events: a dry run does that by the rows of the sessions alone. */
export const countOf = (em: EntityManager, flags: OwnerFlags) =>
  new SessionMaintenance(em).prune({ ...ownerOf(flags), olderThan: 0, includeLeased: true, dryRun: true });

/** Notes that nothing is stored under a name: a misspelt one gives an empty result otherwise. */
export function noteNone(terminal: Terminal, { app, user }: OwnerFlags): void {
  const names = [app !== undefined && `app ${quoted(app)}`, user !== undefined && `user ${quoted(user)}`];
  terminal.note(`No session${['', ...names.filter((name) => name !== false)].join(' of ')} is stored.`);
}
