import { IMAGES } from '../../../http/src/file.js';
import { fileResponse } from '../../../http/src/file-response.js';
import { bytes } from '../operations/words.js';
import { Refusal } from '../guard.js';
import { html, type Html } from '../html.js';
import { PAGE } from '../reading.js';
import { notFound, type Visit } from '../visit.js';
import { LARGEST_IMAGE } from './event-view.js';
import { ago, codeOf, empty, firstOf, nextLink, page, table } from './layout.js';
import { sessionBar } from './session-head.js';

interface ShownFile {
  filename: string;
  version: number;
  mimeType?: string | undefined;
  size?: number | undefined;
  createTime: number;
}

/** The artifacts of a session and of its user, or the versions of one of them. */
export async function filesPage(visit: Visit): Promise<Response> {
  const { links, session: key, params, reading } = visit;
  const session = await reading.session(key);
  if (!session) throw notFound();
  const filename = params.get('file');
  const { files, next } =
    filename === null ? await listed(visit) : { files: await versionsOf(visit, filename), next: undefined };
  const columns: Parameters<typeof table<ShownFile>>[1] = {
    [filename === null ? 'File' : 'Version']: (file) => nameOf(visit, file, filename === null),
    Type: ({ mimeType, size }) => mimeType ?? (size === undefined ? 'a reference' : ''),
    '#Size': ({ size }) => size !== undefined && bytes(size),
    '#Saved': ({ createTime }) => ago(createTime),
    '#Versions':
      filename === null &&
      (({ filename, version }) =>
        html`<a href="${links.ofSession('/files', key, { file: filename })}">${version + 1}</a>`),
  };
  const none = empty(
    'No files',
    'What an agent saves with ',
    codeOf('saveArtifact'),
    ' for this session or its user appears here.',
  );
  const body = html`${await sessionBar(visit, session, '/files')}
    <h2>${filename === null ? 'Files' : html`Versions of <bdi>${filename}</bdi>`}</h2>
    ${table(files, columns, none)}
    ${nextLink(next === undefined ? undefined : links.ofSession('/files', key, { after: next }))}`;
  const crumbs = [
    { text: key.userId, href: links.sessions(key.appName, key.userId) },
    ...(filename === null ? [] : [{ text: 'Files', href: links.ofSession('/files', key) }]),
  ];
  return page(visit, { title: filename ?? 'Files', appName: key.appName, crumbs, body });
}

async function listed({ session: key, params, reading }: Visit) {
  const name = params.get('after');
  const after =
    name === null ? undefined : { filename: name, ...(!name.startsWith('user:') && { sessionId: key.sessionId }) };
  const { rows, last } = firstOf(
    await reading.artifacts.findArtifacts({ ...key, limit: PAGE + 1, ...(after && { after }) }),
  );
  return { files: rows, next: last?.filename };
}

/** The newest first. */
async function versionsOf({ session, reading }: Visit, filename: string): Promise<ShownFile[]> {
  const versions = await reading.artifacts.listArtifactVersions({ ...session, filename });
  return versions.map((version) => ({ filename, ...version })).reverse();
}

function nameOf({ links, session }: Visit, file: ShownFile, isNewest: boolean): Html {
  const { filename, version, mimeType, size } = file;
  const href = links.ofSession('/file', session, { file: filename, version });
  const name = isNewest ? html`<bdi>${filename}</bdi>` : html`${version}`;
  const isShown = IMAGES.includes(mimeType) && size !== undefined && size <= LARGEST_IMAGE;
  return html`${isShown && html`<img class="thumb" src="${href}" alt="" loading="lazy" />`}${
    size === undefined ? name : html`<a href="${href}" download>${name}</a>`
  }`;
}

/** The content of a version. Images can be displayed; everything else is a download. */
export async function artifactFile(visit: Visit): Promise<Response> {
  const { session, params, reading, request } = visit;
  const filename = params.get('file') ?? '';
  const version = visit.number('version');
  const content = await reading.artifacts.openArtifact({
    ...session,
    filename,
    ...(version !== undefined && { version }),
  });
  if (!content) throw new Refusal(404, 'There is no such file.');
  return fileResponse(request, content, filename, (error) =>
    reading.database.report(error, { operation: 'studio', key: session }),
  );
}
