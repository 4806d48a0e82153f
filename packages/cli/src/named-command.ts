import { Command, Option } from 'commander';

/** What the package calls options and arguments, if not as the command line does. */
export const CALLED: Readonly<Record<string, string>> = {
  '--app <name>': 'appName',
  '--user <id>': 'userId',
  '--session <id>': 'sessionId',
  '--id <id>': 'memoryId',
  '--label <name=value>': 'labels',
  '--before <invocation>': 'beforeInvocationId',
  '--pause <time>': 'pauseMs',
  '--last <n>': 'numRecentEvents',
  app: 'appName',
  user: 'userId',
  session: 'sessionId',
};

class NamedOption extends Option {
  override attributeName(): string {
    return CALLED[this.flags] ?? super.attributeName();
  }
}

/** A command whose options have the names of the package, to be passed on as they are. */
export class NamedCommand extends Command {
  override createCommand(name?: string): NamedCommand {
    return new NamedCommand(name);
  }

  override createOption(flags: string, description?: string): Option {
    return new NamedOption(flags, description);
  }
}
