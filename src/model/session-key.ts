/** The three names that identify a session; ADK's `CompositeSessionKey`. */
export interface SessionKey {
  appName: string;
  userId: string;
  sessionId: string;
}

/** Separates the id of a session from what names its subagent's session: `s1:sub:research.web`. */
export const SESSION_TREE_SEPARATOR = ':sub:';
