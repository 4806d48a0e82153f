export * from './postgresql/Migration20261121000000_adk_initial.js';
