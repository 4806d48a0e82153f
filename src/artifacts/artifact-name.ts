/** What ADK names files of the user with. They are stored without it, as keys of state are. */
const USER_PREFIX = 'user:';

export const isOfUser = (filename: string): boolean => filename.startsWith(USER_PREFIX);

/** @returns the name as it is stored. */
export const storedName = (filename: string): string =>
  isOfUser(filename) ? filename.slice(USER_PREFIX.length) : filename;

/** @param name as it is stored. */
export const nameOfUsers = (name: string): string => USER_PREFIX + name;
