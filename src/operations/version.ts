/** As in package.json, which is not found by every bundle; a test compares them. */
export const packageVersion = '0.1.0';
