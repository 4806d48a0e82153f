// What tests get for @electric-sql/pglite, see environment.js.
export const { PGlite } = /** @type {{ PGlite: unknown }} */ (/** @type {unknown} */ (globalThis));
