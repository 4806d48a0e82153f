/** Separates the id of a session from what names its subagent's session: `s1:sub:research.web`. */
export const SESSION_TREE_SEPARATOR = ':sub:';
