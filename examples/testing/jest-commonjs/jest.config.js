/** @type {import('jest').Config} */
module.exports = {
  transform: { '\\.[jt]s$': '@swc/jest' },
  // @google/adk requires lodash-es, which has ES modules only: jest compiles it like your own sources.
  transformIgnorePatterns: ['/node_modules/(?!.*lodash-es/)'],
};
