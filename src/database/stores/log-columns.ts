import { SESSION_TREE_SEPARATOR } from '../../model/session-tree.js';

/** Events after one position, up to and including another; or changes, by their numbers. */
export interface LogRange {
  after: number;
  upTo: number;
  limit: number;
}

/** The conditions of a filter that are columns. */
export interface LogColumns {
  appName?: string | undefined;
  userId?: string | undefined;
  sessionId?: string | undefined;
  sessionTree?: string | undefined;
  afterTimestamp?: number | undefined;
}

/** @returns what follows the conditions of a statement, and its values. */
export function conditions({ appName, userId, sessionId, sessionTree, afterTimestamp }: LogColumns): {
  where: string;
  values: unknown[];
} {
  const all: [boolean, string, unknown[]][] = [
    [appName !== undefined, 'app_name = ?', [appName]],
    [userId !== undefined, 'user_id = ?', [userId]],
    [sessionId !== undefined, 'session_id = ?', [sessionId]],
    // A range, not `like`: `like` takes `%` and `_` for wildcards, and on SQLite `A` for `a`.
    [
      sessionTree !== undefined,
      '(session_id = ? or (session_id >= ? and session_id < ?))',
      [sessionTree, `${sessionTree}${SESSION_TREE_SEPARATOR}`, `${sessionTree}${AFTER_SEPARATOR}`],
    ],
    [afterTimestamp !== undefined, 'timestamp > ?', [afterTimestamp]],
  ];
  const given = all.filter(([isGiven]) => isGiven);
  return {
    where: given.map(([, text]) => ` and ${text}`).join(''),
    values: given.flatMap(([, , values]) => values),
  };
}

/** The next after all that begins with a text. */
export const afterPrefix = (text: string) => text.replace(/.$/, (last) => String.fromCharCode(last.charCodeAt(0) + 1));

const AFTER_SEPARATOR = afterPrefix(SESSION_TREE_SEPARATOR);
