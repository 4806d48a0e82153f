/** @type {import('jest').Config} */
export default {
  transform: { '\\.ts$': '@swc/jest' },
  extensionsToTreatAsEsm: ['.ts'],
};
