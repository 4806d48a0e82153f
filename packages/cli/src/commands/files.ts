import { MikroOrmArtifactService, SessionNotFoundError, type ArtifactSummary } from '../../../../src/index.js';
import { Database, storedSession } from '../../../../src/internal.js';
import { bytes, quoted } from '../../../studio/src/operations/words.js';
import { Unfinished, UsageError } from '../errors.js';
import { writeFile } from '../files.js';
import type { Context, Work } from '../run.js';

/** How many files are listed at once. */
const PAGE = 1_000;

/** Lists the files of a session and of its user, or writes the newest version of one of them. */
export const files: Work<[string, string, string, string | undefined, string | undefined]> = async (
  { em, codec, terminal },
  ...[appName, userId, sessionId, filename, file]
) => {
  const artifacts = new MikroOrmArtifactService(em, codec);
  const key = { appName, userId, sessionId };
  if (filename !== undefined) return save({ terminal }, artifacts, { ...key, filename }, file);
  const found: ArtifactSummary[] = [];
  let page: ArtifactSummary[] = [];
  do {
    const after = found.at(-1);
    page = await artifacts.findArtifacts({ ...key, limit: PAGE, ...(after && { after }) });
    found.push(...page);
  } while (page.length === PAGE);
  // The service stores files of sessions that do not exist, too. The user's files are in the list of any session id.
  const isThere =
    found.some((each) => each.sessionId !== undefined) ||
    (await new Database(em).reader('files')((sql) => storedSession(sql, key)));
  if (!isThere) throw new SessionNotFoundError(sessionId);
  const rows = found.map((each) => [
    ...[each.filename, each.version, each.mimeType ?? ''],
    ...[{ amount: each.size === undefined ? '' : bytes(each.size) }, { time: each.createTime }],
  ]);
  await terminal.result(found, () => terminal.table([['file', 'version', 'type', 'size', 'saved'], ...rows]));
  if (found.length === 0) terminal.note('Neither the session nor its user has files.');
};

async function save(
  { terminal }: Pick<Context, 'terminal'>,
  artifacts: MikroOrmArtifactService,
  request: Parameters<MikroOrmArtifactService['openArtifact']>[0],
  file: string | undefined,
): Promise<void> {
  const { filename } = request;
  if (file === undefined && process.stdout.isTTY)
    throw new UsageError(`Name a file for the content of ${quoted(filename)}, or pipe it to a program.`);
  const content = await artifacts.openArtifact(request);
  if (!content) {
    const uri = (await artifacts.loadArtifact(request))?.fileData?.fileUri;
    throw new Unfinished(
      uri === undefined
        ? `There is no file ${quoted(filename)}. The command without it lists the files.`
        : `The content of ${quoted(filename)} is not in the database, but at ${quoted(uri)}.`,
    );
  }
  await writeFile(file, content.bytes());
  terminal.note(`Wrote version ${content.version}, ${bytes(content.size)}.`);
}
