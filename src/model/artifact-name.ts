/** ADK's prefix for files of the user. They are stored without it, like keys of state. */
const USER_PREFIX = 'user:';

export const isOfUser = (filename: string): boolean => filename.startsWith(USER_PREFIX);

/** @returns the stored name. */
export const storedName = (filename: string): string =>
  isOfUser(filename) ? filename.slice(USER_PREFIX.length) : filename;

/** @param name the stored name. */
export const nameOfUsers = (name: string): string => USER_PREFIX + name;
