/** What the command `studio` loads, in one import. */
export { createStudio } from './studio.js';
export { listenerOf } from '../../../src/http/listener.js';
export { tokenDoor } from './token.js';
