// In place of `@rushstack/ts-command-line`: umzug derives a command line from its classes, which no test runs.
export const CommandLineAction = Object;
export const CommandLineParser = Object;
