/**
 * Serves what `adk-mikro-orm` stores by HTTP: files and the events of a session.
 *
 * @module adk-mikro-orm-http
 */
export { createArtifactHandler, type ArtifactHandlerOptions } from './artifact-handler.js';
export { createEventStreamHandler } from './event-stream-handler.js';
