/**
 * Copies the sessions of ADK's own stores into the tables of `adk-mikro-orm`.
 *
 * @module adk-mikro-orm-import
 */
export { importFrom } from './import-from.js';
export type { ImportFromOptions, RefusedRow, SavedNames } from './options.js';
