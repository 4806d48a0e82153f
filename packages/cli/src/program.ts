import { Argument, CommanderError, Option, type Command } from 'commander';
import { NamedCommand } from './named-command.js';
import type { Work } from './run.js';
import { duration, label, logCursor, port, time, timeOrTimeOfDay, wholeNumber } from './values.js';
import { packageVersion } from '../../../src/model/version.js';

const EPILOGUE = `
The database is that of your MikroORM config, found as the mikro-orm command finds it. Results go to stdout, everything
else to stderr. Ctrl-C ends between two transactions; the same command again continues.
Exit codes: 0, 1 (something failed, or was ended early), 2 (the command line was wrong).`;

/** Runs a command line, and sets `process.exitCode`. */
export async function runCommandLine(args: readonly string[]): Promise<void> {
  try {
    await program().parseAsync(args, { from: 'user' });
  } catch (error) {
    // Commander has reported it. Help and version are not errors.
    if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2;
    else (await import('./run.js')).fail(error);
  }
}

/** An action for commander. It loads what its command needs, since all commands together take a second to load. */
const action = (load: () => Promise<Work<never>>, options: { mayCreate?: boolean; ofSession?: boolean } = {}) =>
  async function (this: Command): Promise<void> {
    const { runCommand } = await import('./run.js');
    await runCommand(this, load, options);
  };

/** The command line of this package. Its actions set `process.exitCode`. */
function program(): Command {
  const program = new NamedCommand('adk-mikro-orm')
    .description('Looks after the sessions of ADK agents in your own database.')
    .version(packageVersion)
    .option('--config <file>', 'path of the MikroORM config, if it is not found')
    .addOption(
      new Option(
        '--url <url>',
        'instead of a config: sqlite:<file>, postgresql://…, mysql://… or mariadb://…',
      ).conflicts('config'),
    )
    .option(
      '--codec <file>',
      'a JavaScript module whose default export is the codec of your services, if package.json does not name it',
    )
    .option('--max-decoded-bytes <n>', 'their maxDecodedBytes, if they have one', wholeNumber)
    .option('--json', 'results as JSON, one value to a line')
    .option('--utc', 'times of tables in UTC, not how long ago they were')
    .configureHelp({ showGlobalOptions: true })
    .addHelpText('after', EPILOGUE)
    .exitOverride()
    .showHelpAfterError('(--help says more)');

  const command = (usage: string, description: string, example: string) =>
    program.command(usage).description(description).addHelpText('after', `\nExample:\n  $ adk-mikro-orm ${example}`);

  command('doctor', 'checks the database and its settings, and advises what to do', 'doctor').action(
    action(async () => (await import('./commands/doctor.js')).doctor),
  );

  command('migrate', 'brings the tables up to this version', 'migrate')
    .option('--dry-run', 'only show what would be run')
    .action(action(async () => (await import('./commands/migrate.js')).runMigrations, { mayCreate: true }));

  command('distribute', 'distributes the tables over the nodes of Citus', 'distribute --by user --shards 64')
    .addOption(
      new Option('--by <layout>', "each user's rows, or all of a schema, on one node")
        .choices(['user', 'schema'])
        .default('user'),
    )
    .option('--shards <n>', 'by user: into how many parts the rows are divided (default: 32)', wholeNumber)
    .option('--move', 'also tables with rows, which are locked until they are moved')
    .action(action(async () => (await import('./commands/distribute.js')).runDistribution));

  command(
    'check-engine',
    'tests in a database of its own whether a server keeps the contract',
    'check-engine --url postgresql://…',
  ).action(action(async () => (await import('./commands/check-engine.js')).checkEngine));

  command('stats', 'counts sessions, users, events and bytes', 'stats --by-app')
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--by-app', 'a line for each app')
    .action(action(async () => (await import('./commands/inspect.js')).stats));

  command(
    'usage',
    'sums up tokens, calls of tools and costs, the largest sums first',
    'usage --app support --from 2026-11-01 --by model',
  )
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--from <day>', 'the first day, in UTC (default: 29 days before the last one)')
    .option('--to <day>', 'the last day (default: today)')
    .addOption(
      new Option('--by <group>', 'a line for each').choices(['day', 'user', 'model', 'agent', 'app']).default('day'),
    )
    .option('--prices <file>', 'JSON with prices of a million tokens: { "gemini-x": { "input": 0.3, "output": 2.5 } }')
    .action(action(async () => (await import('./commands/usage.js')).usage));

  command('list', 'lists the apps, or the sessions of one, the newest first', 'list --app support --label team=red')
    .option('--app <name>', 'the app; without it, the names of all apps')
    .option('--user <id>', 'one user')
    .option('--title <text>', 'with this in their title')
    .option('--label <name=value>', 'with this label; may be given several times', label)
    .option('--updated-after <time>', 'updated later than this', time)
    .option('--updated-before <time>', 'updated earlier than this', time)
    .option('--deleted', 'soft-deleted sessions')
    .option('--oldest-first', 'the oldest first')
    .option('--limit <n>', 'how many at most (default: 50)', wholeNumber)
    .option('--after <cursor>', 'the next page')
    .addOption(
      new Option('--by <amount>', 'the largest first, of those that were updated last')
        .choices(['size', 'events', 'tokens'])
        .conflicts(['after', 'oldestFirst']),
    )
    .action(action(async () => (await import('./commands/inspect.js')).list));

  command('waiting', 'lists the calls that wait for a person, the oldest first', 'waiting --app support --open-for 1h')
    .requiredOption('--app <name>', 'the app')
    .option('--user <id>', 'one user')
    .option('--name <tool>', "one tool, or one of ADK's questions, such as adk_request_confirmation")
    .option('--open-for <time>', 'open for at least this long, such as 30m', duration)
    .option('--limit <n>', 'how many at most (default: 50)', wholeNumber)
    .option('--after <cursor>', 'the next page')
    .action(action(async () => (await import('./commands/inspect.js')).waiting));

  command('top', 'shows what runs, waits and has failed, until Ctrl-C', 'top --once')
    .option('--once', 'prints it once, as without a terminal')
    .action(action(async () => (await import('./commands/top.js')).top));

  command(
    'answer <app> <user> <session> <call> [response]',
    'answers a call that waits for a person: a confirmation with --approve or --reject, others with a JSON object',
    'answer support ada 4711 adk-1c2d --approve',
  )
    .addOption(new Option('--approve', 'the tool runs').conflicts('reject'))
    .option('--reject', 'the tool does not run, and the agent learns that')
    .action(action(async () => (await import('./commands/answer.js')).answer));

  command('show <app> <user> <session>', 'shows a conversation', 'show support ada 4711 --last 20')
    .option('--last <n>', 'only the newest n events', wholeNumber)
    .option('--from <n>', 'only events from this number on', wholeNumber)
    .option('--to <n>', 'only events up to this number', wholeNumber)
    .option('--full', 'answers of tools in full, not only their first 500 characters')
    .action(action(async () => (await import('./commands/inspect.js')).show, { ofSession: true }));

  command(
    'files <app> <user> <session> [name]',
    'lists the files of a session and of its user, or writes one of them',
    'files support ada 4711 report.pdf report.pdf',
  )
    .argument('[file]', 'where to write it; the standard output by default')
    .action(action(async () => (await import('./commands/files.js')).files));

  command(
    'tail',
    'shows what happens, until Ctrl-C, or what happened',
    'tail --app support --since 14:00 --until 14:05',
  )
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--session <id>', 'one session')
    .option('--full', 'answers of tools in full, not only their first 500 characters')
    .option('--from <cursor>', "begin after this: 0 for everything, or an entry's cursor as JSON", logCursor)
    .addOption(
      new Option('--since <time>', 'begin at this time: 14:00 (of this machine; with --utc in UTC), or in ISO 8601')
        .conflicts('from')
        .argParser(timeOrTimeOfDay),
    )
    .option('--until <time>', 'end at this time', timeOrTimeOfDay)
    .action(action(async () => (await import('./commands/inspect.js')).tail));

  command('studio', 'shows sessions in a browser, until Ctrl-C', 'studio --port 4000')
    .option('--port <n>', 'where it listens (default: 4777)', port)
    .option('--host <address>', 'another address than 127.0.0.1; then it takes a token, which is in the printed link')
    .option('--allow-changes', 'allow titles, deletions, forks, rewinds, forgetting, and answers to calls that wait')
    .option('--open', 'also opens it in the browser')
    .option('--prices <file>', 'JSON with prices of a million tokens, as for usage')
    .action(action(async () => (await import('./commands/studio.js')).studio));

  batches(command('prune', 'deletes whole sessions', 'prune --idle-for 90d --dry-run'))
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--idle-for <time>', 'last updated at least this long ago, such as 90d or 12h', duration)
    .option('--sessions-older-than <time>', 'created at least this long ago', duration)
    .option('--deleted-for <time>', 'soft-deleted at least this long ago', duration)
    .action(action(async () => (await import('./commands/remove.js')).prune));

  batches(
    command('trim', 'drops the oldest events of sessions, and keeps their state', 'trim --app support --keep-last 500'),
  )
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--session <id>', 'one session; needs --app and --user')
    .option('--keep-last <n>', 'keep the newest n events', wholeNumber)
    .option('--events-older-than <time>', 'drop those that are older, such as 90d', duration)
    .option('--drop-open-calls', 'also events with calls that wait for a person, and those after them')
    .option(
      '--no-keep-summary',
      "also the newest summary of an agent's compaction, and what a model is shown beside it",
    )
    .action(action(async () => (await import('./commands/remove.js')).trim));

  batches(
    command(
      'erase-user <user>',
      'deletes everything that a person has: sessions, state, files, memories and credentials',
      'erase-user ada',
    ),
  )
    .option('--app <name>', 'in one app only')
    .action(action(async () => (await import('./commands/remove.js')).eraseUser));

  memory(command('memory', 'what agents remember of a user', "memory search support ada 'Which allergies?'"));

  leases(command('leases', 'who runs which session', 'leases --app support'));

  command('export', 'writes sessions and state as lines of JSON', 'export --app support support.jsonl')
    .argument('[file]', 'the standard output by default')
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user, without the state of apps')
    .option('--session <id>', 'with --format session: the session, of --app and --user')
    .addOption(new Option('--format <format>', 'one session as adk run --resume reads it').choices(['session']))
    .action(action(async () => (await import('./commands/transfer.js')).exportSessions));

  command('import', 'reads what export has written, or copies another ADK session store', 'import support.jsonl')
    .argument('[file]', 'of export, or of adk run --save_session or adk web; - for the standard input')
    .option('--app <name>', 'for saved sessions: the app, in place of theirs')
    .option('--user <id>', 'for saved sessions: the user')
    .option('--session <id>', 'for one saved session: its id')
    .option('--keep-annulled', 'also take events that a rewind of adk-python has annulled')
    .addOption(
      new Option('--on-existing <what>', 'with sessions that are here: leave, replace, or refuse them')
        .choices(['skip', 'replace', 'error'])
        .default('skip'),
    )
    .option('--force', 'with --on-existing replace: also those to which somebody has written here since their import')
    .option('--keep-state', 'values of user: and app: state that are here stay; by default those of the file win')
    .option('--from <url>', 'a database of a session service of ADK for TypeScript, Python or Go')
    .option('--dry-run', 'not for a file of export: only count, and report what cannot be taken')
    .option('--batch-size <n>', 'how many events a transaction writes at most (default: 500)', wholeNumber)
    .action(action(async () => (await import('./commands/transfer.js')).importSessions));

  command(
    'repair <app> [user] [session]',
    'removes what cannot be read from a damaged session, or from the state of a user or of an app',
    'repair support ada 4711 --save taken.jsonl',
  )
    .option('--save <file>', 'where to put what is removed')
    .option('--dry-run', 'only report what is damaged')
    .option('--include-leased', 'also while somebody holds its lease')
    .option('--yes', 'do not ask')
    .action(action(async () => (await import('./commands/repair.js')).repair));

  command('reencode', 'rewrites contents as the codec stores them now', 'reencode --codec ./codec.js --dry-run')
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user, without the state of apps')
    .option('--dry-run', 'only count')
    .option('--batch-size <n>', 'how many texts a transaction rewrites at most (default: 200)', wholeNumber)
    .option('--max-batches <n>', 'end after n transactions', wholeNumber)
    .option('--pause <time>', 'how long to wait between two transactions, such as 1s', duration)
    .action(action(async () => (await import('./commands/reencode.js')).reencode));

  historyPoint(
    command(
      'fork <app> <user> <session>',
      'makes a new session from the earlier events of another one',
      'fork support ada 4711 --at 12',
    ),
  )
    .option('--as <id>', 'the id of the new session')
    .action(action(async () => (await import('./commands/history.js')).fork, { ofSession: true }));

  historyPoint(
    command(
      'rewind <app> <user> <session>',
      'takes a session back, and deletes the events after that',
      'rewind support ada 4711 --at 12',
    ),
  )
    .option('--include-leased', 'also while somebody holds its lease')
    .option('--yes', 'do not ask')
    .action(action(async () => (await import('./commands/history.js')).rewind, { ofSession: true }));

  command('restore <app> <user> <session>', 'brings back a soft-deleted session', 'restore support ada 4711').action(
    action(async () => (await import('./commands/history.js')).restore, { ofSession: true }),
  );

  command('web', "serves ADK's development page and API with the sessions of the database", 'web ./agents')
    .argument('[folder]', 'where the agents are', '.')
    .option('--port <n>', 'the port of localhost (default: 8000)', port)
    .action(action(async () => (await import('./commands/web.js')).web));

  command('completion', 'prints a script with which a shell completes commands and options', 'completion bash')
    .addArgument(new Argument('<shell>').choices(['bash', 'zsh', 'fish']))
    .action(async (shell: string) => {
      process.stdout.write((await import('./completion.js')).completionOf(program, shell));
    });

  return program;
}

function memory(memory: Command): void {
  memory
    .command('search <app> <user> <question>')
    .description('finds memories of a user, and of the app, by their words: the best match first')
    .option('--session <id>', 'of one session')
    .option('--since <time>', 'not older than this', time)
    .option('--limit <n>', 'how many at most (default: 10)', wholeNumber)
    .action(action(async () => (await import('./commands/memory.js')).search));
  memory
    .command('forget <app> [user]')
    .description('deletes memories of a user, or without a user those of the app')
    .option('--id <id>', 'one memory')
    .option('--session <id>', 'those of one session')
    .option('--before <time>', 'those that are older', time)
    .option('--all', 'all')
    .option('--dry-run', 'only count')
    .option('--yes', 'do not ask')
    .action(action(async () => (await import('./commands/memory.js')).forget));
  memory
    .command('rebuild')
    .description('forgets what a projection has remembered, and remembers it again from the log')
    .option('--options <file>', 'a JavaScript module whose default export is { service, projection }: your options')
    .option('--vectors', 'forgets nothing: only gives memories the vectors of embed that they lack')
    .option('--dry-run', 'only count')
    .option('--yes', 'do not ask')
    .action(action(async () => (await import('./commands/memory.js')).rebuild));
}

function leases(leases: Command): void {
  leases
    .command('list', { isDefault: true })
    .description('lists the leases that somebody holds, the oldest first')
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--limit <n>', 'how many at most (default: 100)', wholeNumber)
    .action(action(async () => (await import('./commands/leases.js')).list));
  leases
    .command('release <app> <user> <session>')
    .description('ends a lease, whoever holds it; its holder can write no more')
    .option('--yes', 'do not ask')
    .action(action(async () => (await import('./commands/leases.js')).release, { ofSession: true }));
}

/** For the commands that delete in batches. */
function batches(command: Command): Command {
  return command
    .option('--dry-run', 'only count')
    .option('--yes', 'do not ask')
    .option('--batch-size <n>', 'how many rows a transaction deletes at most (default: 1000)', wholeNumber)
    .option('--max-batches <n>', 'end after n transactions', wholeNumber)
    .option('--pause <time>', 'how long to wait between two transactions, such as 1s', duration)
    .option('--include-leased', 'also sessions whose lease somebody holds');
}

function historyPoint(command: Command): Command {
  return command
    .option('--at <n>', 'after the event with this number', wholeNumber)
    .option('--before <invocation>', 'before the first event of this invocation');
}
