/**
 * Pages that show the stored sessions. `docs/studio.md` of `adk-mikro-orm` says how to run and mount them.
 *
 * @module adk-mikro-orm-studio
 */
export { createStudio } from './studio.js';
export type { StudioScope } from './guard.js';
export { usageOf, type Usage, type UsageOptions } from './operations/usage.js';
export type { LogReaders, Price, Prices, Studio, StudioOptions } from './options.js';
