export * from './mariadb/Migration20261121000000_adk_initial.js';
export * from './mariadb/Migration20261122000000_adk_operations.js';
export * from './mariadb/Migration20261123000000_adk_projections.js';
