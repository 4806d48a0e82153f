import { labelsIn } from '../../../../src/model/description.js';
import { SessionNotFoundError } from '../../../../src/index.js';
import { decode, isRecord } from '../../../../src/model/json.js';
import type { StoredSession } from '../../../../src/internal.js';
import { Refusal, checkForm, seeOther } from '../guard.js';
import { fieldValue, html, type Content, type Html } from '../html.js';
import { eventNumber, notFound, type Visit } from '../visit.js';
import { answerFields, storeForm } from './answer.js';
import { answeredPage } from './answered.js';
import { labelText, labelsOf } from './lists.js';
import { page } from './layout.js';

/** A change that a visitor may make to a session: its form, and what it does. */
interface Change {
  title: string;
  /** Whether it applies to soft-deleted sessions, and only to them. */
  isOfDeleted?: boolean;
  /** Says what will happen, and has the fields of the form. */
  fields: (session: StoredSession, visit: Visit) => Content | Promise<Content>;
  /** @returns what is shown instead of the form if the change was made already. */
  done?: (session: StoredSession, visit: Visit) => Promise<Html | undefined>;
  /** Absent if the fields have buttons, which confirm the change. */
  button?: string;
  /** Whether it deletes something. */
  isDangerous?: boolean;
  /** @returns the page to show next. */
  apply(visit: Visit, form: URLSearchParams): Promise<string>;
}

const CHANGES: Readonly<Record<string, Change>> = {
  '/describe': {
    title: 'Edit title and labels',
    fields: ({ title, labels }) => {
      const lines = Object.entries(labelsIn(labels)).map(([name, value]) => labelText(name, value));
      // As the browser will send them: its field for a title removes line breaks.
      const shown = { title: (title ?? '').replace(/[\r\n]/g, ''), labels: lines.join('\n') };
      return html`<input type="hidden" name="shown" value="${fieldValue(JSON.stringify(shown))}" />
        <label>Title<input name="title" maxlength="255" value="${fieldValue(shown.title)}" /></label>
        <label
          >Labels, one name=value to a line<textarea name="labels" rows="4">${fieldValue(shown.labels)}</textarea>
        </label>`;
    },
    button: 'Save',
    async apply({ reading, session, links }, form) {
      const before = decode(form.get('shown') ?? '')?.value;
      const shown: Readonly<Record<string, unknown>> = isRecord(before) ? before : {};
      const title = form.get('title') ?? '';
      const text = (form.get('labels') ?? '').replaceAll('\r\n', '\n');
      const labels = labelsOf(text.split('\n').filter((line) => line.trim() !== ''));
      // Writes only what was edited: the rest may have been changed by somebody else meanwhile.
      await reading.service.describeSession(session, {
        ...(title !== shown['title'] && { title: title === '' ? null : title }),
        ...(text !== shown['labels'] && { labels: Object.keys(labels).length === 0 ? null : labels }),
      });
      return links.ofSession('/session', session);
    },
  },
  '/answer': {
    title: 'Answer instead of the person',
    fields: ({ title }, visit) => answerFields(visit, title),
    done: ({ title }, visit) => answeredPage(visit, title),
    apply: storeForm,
  },
  '/delete': {
    title: 'Delete this session',
    fields: () =>
      html`<p>
        It is gone from lists and for agents, and can be restored until its id is used again or prune deletes it for
        good.
      </p>`,
    button: 'Delete',
    isDangerous: true,
    async apply({ reading, session, links }) {
      await reading.service.deleteSession(session);
      return links.to('/sessions', { app: session.appName, status: 'deleted' });
    },
  },
  '/restore': {
    title: 'Restore this session',
    isOfDeleted: true,
    fields: () => html`<p>It will be as it was when it was deleted.</p>`,
    button: 'Restore',
    async apply({ reading, session, links }) {
      await reading.service.restoreSession(session);
      return links.ofSession('/session', session);
    },
  },
  '/fork': {
    title: 'Fork this session',
    fields: ({ firstSeq, lastSeq }, visit) =>
      html`<p>
          A new session gets the events up to one of them, and the session’s own state as it was then. This session
          stays as it is.
        </p>
        ${pointField(firstSeq, lastSeq, visit.number('at') ?? lastSeq)}
        <label>Id of the new session, empty for a random one<input name="as" maxlength="191" /></label>`,
    button: 'Fork',
    async apply({ reading, session, links }, form) {
      const as = form.get('as') ?? '';
      const made = await reading.service.forkSession(session, { at: pointOf(form), ...(as !== '' && { as }) });
      return links.ofSession('/session', { ...session, sessionId: made.id });
    },
  },
  '/rewind': {
    title: 'Rewind this session',
    fields: ({ firstSeq, lastSeq }, visit) =>
      html`<p>
          The events after one of them are deleted for good, and the session’s own state becomes what it was then.
        </p>
        ${pointField(firstSeq, lastSeq, visit.number('at') ?? lastSeq)}`,
    button: 'Delete the later events',
    isDangerous: true,
    async apply({ reading, session, links }, form) {
      await reading.service.rewindSession(session, { at: pointOf(form) });
      return links.ofSession('/session', session);
    },
  },
};

export const isChange = (path: string) => Object.hasOwn(CHANGES, path);

/** Shows the form of a change (GET), or makes the change (POST). */
export async function changePage(visit: Visit): Promise<Response> {
  const change = CHANGES[visit.path];
  if (!change || !visit.mayChange) throw new Refusal(403, 'Nothing can be changed here. It takes allowChanges.');
  const { session: key, reading, request } = visit;
  if (request.method === 'POST') return changed(visit, (form) => change.apply(visit, form));
  const session = await reading.session(key);
  if (!session || (session.deletedAt !== undefined) !== (change.isOfDeleted ?? false)) throw notFound();
  return formPage(visit, change, session);
}

/** Makes the change that a form of the studio requests. @param apply returns the page to show next. */
export async function changed(
  { request }: Visit,
  apply: (form: URLSearchParams) => Promise<string>,
): Promise<Response> {
  if (!/^application\/x-www-form-urlencoded\b/.test(request.headers.get('content-type') ?? ''))
    throw new Refusal(415, 'This is not a form.');
  const form = new URLSearchParams(await request.text());
  checkForm(request, form);
  if (!form.get('confirm')) throw new Refusal(400, 'The change was not confirmed. Go back, and tick the box.');
  try {
    return seeOther(await apply(form));
  } catch (error) {
    if (error instanceof SessionNotFoundError) throw notFound();
    throw error;
  }
}

async function formPage(visit: Visit, change: Change, session: StoredSession): Promise<Response> {
  const { title, button, isDangerous } = change;
  const { links, path } = visit;
  const { key } = session;
  const name = session.title ?? key.sessionId;
  const back = links.ofSession('/session', key);
  const crumbs = [{ text: name, href: back }];
  const done = await change.done?.(session, visit);
  if (done)
    return page(visit, {
      title: 'Answered',
      appName: key.appName,
      crumbs,
      body: html`<h1>Answered</h1>
        ${done}`,
    });
  const asked = { at: visit.number('at'), call: visit.params.get('call') ?? undefined };
  const body = html`<h1>${title}</h1>
    <form class="form" method="post" action="${links.ofSession(path, key, asked)}">
      ${visit.tokenField}
      ${
        button !== undefined &&
        html`<p>
          <strong><bdi>${name}</bdi></strong>
          ${session.title !== null && html`<span class="id"><bdi>${key.sessionId}</bdi></span>`}
        </p>`
      }
      ${await change.fields(session, visit)}
      ${
        button !== undefined &&
        html`<label class="check"
            ><input type="checkbox" name="confirm" value="yes" required />Yes, change this session</label
          >
          <div class="actions">
            <button class="${isDangerous ? 'danger' : 'primary'}">${button}</button>
            <a class="button" href="${back}">Cancel</a>
          </div>`
      }
    </form>`;
  return page(visit, { title, appName: key.appName, crumbs, body });
}

function pointField(firstSeq: number, lastSeq: number, value: number): Html {
  return html`<label
    >Last event to keep<input type="number" name="at" min="${firstSeq - 1}" max="${lastSeq}" value="${value}" required
  /></label>`;
}

const pointOf = (form: URLSearchParams) => eventNumber('at', form.get('at') ?? '');
