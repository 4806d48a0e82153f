import { CommanderError, Option, type Command } from 'commander';
import { checkEngine } from './commands/check-engine.js';
import { doctor } from './commands/doctor.js';
import { runDistribution } from './commands/distribute.js';
import { fork, rewind } from './commands/history.js';
import { list, show, stats, tail, waiting } from './commands/inspect.js';
import { list as listLeases, release } from './commands/leases.js';
import { forget, rebuild, search } from './commands/memory.js';
import { runMigrations } from './commands/migrate.js';
import { eraseUser, prune, trim } from './commands/remove.js';
import { reencode } from './commands/reencode.js';
import { repair } from './commands/repair.js';
import { studio } from './commands/studio.js';
import { usage } from './commands/usage.js';
import { exportSessions, importSessions } from './commands/transfer.js';
import { web } from './commands/web.js';
import { NamedCommand, action, fail, sessionAction } from './run.js';
import { duration, label, logCursor, port, time, wholeNumber } from './values.js';
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
    else fail(error);
  }
}

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

  command('doctor', 'checks the database and its settings, and advises what to do', 'doctor').action(action(doctor));

  command('migrate', 'brings the tables up to this version', 'migrate')
    .option('--dry-run', 'only show what would be run')
    .action(action(runMigrations, true));

  command('distribute', 'distributes the tables over the nodes of Citus', 'distribute --by user --shards 64')
    .addOption(
      new Option('--by <layout>', "each user's rows, or all of a schema, on one node")
        .choices(['user', 'schema'])
        .default('user'),
    )
    .option('--shards <n>', 'by user: into how many parts the rows are divided (default: 32)', wholeNumber)
    .option('--move', 'also tables with rows, which are locked until they are moved')
    .action(action(runDistribution));

  command(
    'check-engine',
    'tests in a database of its own whether a server keeps the contract',
    'check-engine --url postgresql://…',
  ).action(action(checkEngine));

  command('stats', 'counts sessions, users, events and bytes', 'stats --by-app')
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--by-app', 'a line for each app')
    .action(action(stats));

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
    .action(action(usage));

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
    .action(action(list));

  command('waiting', 'lists the calls that wait for a person, the oldest first', 'waiting --app support --open-for 1h')
    .requiredOption('--app <name>', 'the app')
    .option('--user <id>', 'one user')
    .option('--name <tool>', "one tool, or one of ADK's questions, such as adk_request_confirmation")
    .option('--open-for <time>', 'open for at least this long, such as 30m', duration)
    .option('--limit <n>', 'how many at most (default: 50)', wholeNumber)
    .option('--after <cursor>', 'the next page')
    .action(action(waiting));

  command('show <app> <user> <session>', 'shows a conversation', 'show support ada 4711 --last 20')
    .option('--last <n>', 'only the newest n events', wholeNumber)
    .option('--from <n>', 'only events from this number on', wholeNumber)
    .option('--to <n>', 'only events up to this number', wholeNumber)
    .option('--full', 'answers of tools in full, not only their first 500 characters')
    .action(sessionAction(show));

  command('tail', 'shows what happens, until Ctrl-C', 'tail --app support')
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--session <id>', 'one session')
    .option('--full', 'answers of tools in full, not only their first 500 characters')
    .option('--from <cursor>', "begin after this: 0 for everything, or an entry's cursor as JSON", logCursor)
    .action(action(tail));

  command('studio', 'shows sessions in a browser, until Ctrl-C', 'studio --port 4000')
    .option('--port <n>', 'where it listens (default: 4777)', port)
    .option('--host <address>', 'another address than 127.0.0.1; then it takes a token, which is in the printed link')
    .option('--allow-changes', 'allow titles, deletions, forks, rewinds, forgetting, and answers to calls that wait')
    .option('--prices <file>', 'JSON with prices of a million tokens, as for usage')
    .action(action(studio));

  batches(command('prune', 'deletes whole sessions', 'prune --idle-for 90d --dry-run'))
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--idle-for <time>', 'last updated at least this long ago, such as 90d or 12h', duration)
    .option('--sessions-older-than <time>', 'created at least this long ago', duration)
    .option('--deleted-for <time>', 'soft-deleted at least this long ago', duration)
    .action(action(prune));

  batches(
    command('trim', 'drops the oldest events of sessions, and keeps their state', 'trim --app support --keep-last 500'),
  )
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--session <id>', 'one session; needs --app and --user')
    .option('--keep-last <n>', 'keep the newest n events', wholeNumber)
    .option('--events-older-than <time>', 'drop those that are older, such as 90d', duration)
    .option('--drop-open-calls', 'also events with calls that wait for a person, and those after them')
    .action(action(trim));

  batches(
    command(
      'erase-user <user>',
      'deletes everything that a person has: sessions, state, files, memories and credentials',
      'erase-user ada',
    ),
  )
    .option('--app <name>', 'in one app only')
    .action(action(eraseUser));

  memory(command('memory', 'what agents remember of a user', "memory search support ada 'Which allergies?'"));

  leases(command('leases', 'who runs which session', 'leases list --app support'));

  command('export', 'writes sessions and state as lines of JSON', 'export --app support support.jsonl')
    .argument('[file]', 'the standard output by default')
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user, without the state of apps')
    .option('--session <id>', 'with --format session: the session, of --app and --user')
    .addOption(new Option('--format <format>', 'one session as adk run --resume reads it').choices(['session']))
    .action(action(exportSessions));

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
    .action(action(importSessions));

  command(
    'repair <app> [user] [session]',
    'removes what cannot be read from a damaged session, or from the state of a user or of an app',
    'repair support ada 4711 --save taken.jsonl',
  )
    .option('--save <file>', 'where to put what is removed')
    .option('--dry-run', 'only report what is damaged')
    .option('--include-leased', 'also while somebody holds its lease')
    .option('--yes', 'do not ask')
    .action(action(repair));

  command('reencode', 'rewrites contents as the codec stores them now', 'reencode --codec ./codec.js --dry-run')
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user, without the state of apps')
    .option('--dry-run', 'only count')
    .option('--adopt-plain', 'also encode what lacks a codec with required: only for the first encryption')
    .option('--batch-size <n>', 'how many texts a transaction rewrites at most (default: 200)', wholeNumber)
    .option('--max-batches <n>', 'end after n transactions', wholeNumber)
    .option('--pause <time>', 'how long to wait between two transactions, such as 1s', duration)
    .action(action(reencode));

  historyPoint(
    command(
      'fork <app> <user> <session>',
      'makes a new session from the earlier events of another one',
      'fork support ada 4711 --at 12',
    ),
  )
    .option('--as <id>', 'the id of the new session')
    .action(sessionAction(fork));

  historyPoint(
    command(
      'rewind <app> <user> <session>',
      'takes a session back, and deletes the events after that',
      'rewind support ada 4711 --at 12',
    ),
  )
    .option('--include-leased', 'also while somebody holds its lease')
    .option('--yes', 'do not ask')
    .action(sessionAction(rewind));

  command('web', "serves ADK's development page and API with the sessions of the database", 'web ./agents')
    .argument('[folder]', 'where the agents are', '.')
    .option('--port <n>', 'the port of localhost (default: 8000)', port)
    .action(action(web));

  return program;
}

function memory(memory: Command): void {
  memory
    .command('search <app> <user> <question>')
    .description('finds memories of a user, and of the app, by their words: the best match first')
    .option('--session <id>', 'of one session')
    .option('--since <time>', 'not older than this', time)
    .option('--limit <n>', 'how many at most (default: 10)', wholeNumber)
    .action(action(search));
  memory
    .command('forget <app> [user]')
    .description('deletes memories of a user, or without a user those of the app')
    .option('--id <id>', 'one memory')
    .option('--session <id>', 'those of one session')
    .option('--before <time>', 'those that are older', time)
    .option('--all', 'all')
    .option('--dry-run', 'only count')
    .option('--yes', 'do not ask')
    .action(action(forget));
  memory
    .command('rebuild')
    .description('forgets what a projection has remembered, and remembers it again from the log')
    .option('--options <file>', 'a JavaScript module whose default export is { service, projection }: your options')
    .option('--vectors', 'forgets nothing: only gives memories the vectors of embed that they lack')
    .option('--dry-run', 'only count')
    .option('--yes', 'do not ask')
    .action(action(rebuild));
}

function leases(leases: Command): void {
  leases
    .command('list')
    .description('lists the leases that somebody holds, the oldest first')
    .option('--app <name>', 'one app')
    .option('--user <id>', 'one user')
    .option('--limit <n>', 'how many at most (default: 100)', wholeNumber)
    .action(action(listLeases));
  leases
    .command('release <app> <user> <session>')
    .description('ends a lease, whoever holds it; its holder can write no more')
    .option('--yes', 'do not ask')
    .action(sessionAction(release));
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
