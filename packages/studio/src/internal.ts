/**
 * For `adk-mikro-orm-cli` alone, which needs exactly its own version of this package: any release may change these names.
 *
 * @module adk-mikro-orm-studio/internal
 */
export { listenerOf } from '../../http/src/listener.js';
export { askedAbout, isConfirmation, responseIn, storeAnswer } from './operations/answer.js';
export { examine, type Finding } from './operations/doctor.js';
export { storedEncodings } from './operations/health.js';
export { sortSessions } from './ordered.js';
export { DAYS, HOURS, Reading } from './reading.js';
export { newestOfGroups, positionBefore } from './recent.js';
export { createStudio } from './studio.js';
export { tokenDoor } from './token.js';
