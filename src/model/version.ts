/** The version of package.json, which bundles may lack. A test compares them. */
export const packageVersion = '0.1.0';
