import { isOfUser } from '../../artifacts/artifact-name.js';
import { fileResponse } from '../../artifacts/artifact-handler.js';
import { IMAGES } from '../../http/file.js';
import { bytes } from '../../operations/words.js';
import { Refusal } from '../guard.js';
import { html, type Content, type Html } from '../html.js';
import { PAGE } from '../reading.js';
import { notFound, type Visit } from '../visit.js';
import { LARGEST_IMAGE } from './event-view.js';
import { ago, empty, page, table } from './layout.js';

/** What a row of the list is made of. */
interface ShownFile {
  filename: string;
  version: number;
  mimeType?: string | undefined;
  size?: number | undefined;
  createTime: number;
}

/** The files of a session and of its user, or the versions of one of them. */
export async function filesPage(visit: Visit): Promise<Response> {
  const { links, session: key, params, reading } = visit;
  if (!(await reading.session(key))) throw notFound();
  const filename = params.get('file');
  const { files, next } =
    filename === null ? await listed(visit) : { files: await versionsOf(visit, filename), next: undefined };
  const head = [
    filename === null ? 'File' : 'Version',
    'Type',
    '#Size',
    '#Saved',
    ...(filename === null ? ['Versions'] : []),
  ];
  const rows = files.map((file) => row(visit, file, filename === null));
  const body = html`<h1>${filename === null ? 'Files' : html`Versions of <bdi>${filename}</bdi>`}</h1>
    ${files.length > 0 ? table(head, rows) : empty('No files', 'Neither the session nor its user has artifacts here.')}
    ${next !== undefined && html`<a class="button" href="${links.ofSession('/files', key, { after: next })}" rel="next">Next page</a>`}`;
  const crumbs = [
    { text: 'Apps', href: links.to('/') },
    { text: key.appName, href: links.sessions(key.appName) },
    { text: key.sessionId, href: links.ofSession('/session', key) },
    ...(filename === null ? [] : [{ text: 'Files', href: links.ofSession('/files', key) }]),
  ];
  return page(visit, { title: filename ?? 'Files', crumbs, body });
}

async function listed({
  session: key,
  params,
  reading,
}: Visit): Promise<{ files: ShownFile[]; next: string | undefined }> {
  const last = params.get('after');
  const after = last === null ? undefined : { filename: last, ...(!isOfUser(last) && { sessionId: key.sessionId }) };
  const files = await reading.artifacts.list({ ...key, limit: PAGE + 1, ...(after && { after }) });
  return { files: files.slice(0, PAGE), next: files.length > PAGE ? files[PAGE - 1]?.filename : undefined };
}

/** The newest first. */
async function versionsOf({ session, reading }: Visit, filename: string): Promise<ShownFile[]> {
  const versions = await reading.artifacts.listArtifactVersions({ ...session, filename });
  return versions.map((version) => ({ filename, ...version })).reverse();
}

function row({ links, session }: Visit, file: ShownFile, isNewest: boolean): Html {
  const { filename, version, mimeType, size, createTime } = file;
  const href = links.ofSession('/file', session, { file: filename, version });
  const name = isNewest ? html`<bdi>${filename}</bdi>` : html`${version}`;
  const preview: Content =
    IMAGES.includes(mimeType) &&
    size !== undefined &&
    size <= LARGEST_IMAGE &&
    html`<img src="${href}" alt="" loading="lazy" />`;
  return html`<tr>
    <th scope="row">${size === undefined ? name : html`<a href="${href}" download>${name}</a>`} ${preview}</th>
    <td data-label="Type">${mimeType ?? (size === undefined ? 'a reference' : '')}</td>
    <td class="number" data-label="Size">${size !== undefined && bytes(size)}</td>
    <td class="number" data-label="Saved">${ago(createTime)}</td>
    ${
      isNewest &&
      html`<td data-label="Versions">
        <a href="${links.ofSession('/files', session, { file: filename })}">${version + 1}</a>
      </td>`
    }
  </tr>`;
}

/** The content of a version: an image as such, and everything else to be saved. */
export async function artifactFile(visit: Visit): Promise<Response> {
  const { session, params, reading, request } = visit;
  const filename = params.get('file') ?? '';
  const version = visit.number('version');
  const content = await reading.artifacts.read({ ...session, filename, ...(version !== undefined && { version }) });
  if (!content) throw new Refusal(404, 'There is no such file.');
  return fileResponse(request, content, filename, (error) =>
    reading.database.report(error, { operation: 'studio', key: session }),
  );
}
