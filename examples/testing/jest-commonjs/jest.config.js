/** @type {import('jest').Config} */
module.exports = {
  transform: { '\\.[jt]s$': '@swc/jest' },
  // These have ES modules only, which jest compiles like your own sources: lodash-es, which @google/adk requires, and
  // MikroORM 7.
  transformIgnorePatterns: ['/node_modules/(?!.*(lodash-es|@mikro-orm|kysely)/)'],
};
