import { decode, isRecord, recordOf } from '../../../../src/model/json.js';
import { INTERNAL_PREFIX, withoutInternalMetadata } from '../../../../src/model/internal-metadata.js';
import { partsOf } from '../../../../src/model/turn.js';
import { fileHeaders } from '../../../http/src/file.js';
import { bytes, textOrJson } from '../operations/words.js';
import { Refusal, SECURITY_HEADERS } from '../guard.js';
import { html } from '../html.js';
import { notFound, type Visit } from '../visit.js';
import { page } from './layout.js';

/** How much of an event's JSON a page shows, in characters. */
const MOST = 40_000;

/** Shows the stored JSON of an event, without ADK's internal keys. */
export async function eventPage(visit: Visit): Promise<Response> {
  const { links, session } = visit;
  const { seq, json } = await storedEvent(visit);
  const value = decode(json);
  const text = value ? JSON.stringify(value.value, null, 2) : json;
  const isCut = text.length > MOST;
  const raw = links.ofSession('/event.json', session, { seq });
  const body = html`<div class="heading">
      <h1>Event #${seq}</h1>
      <a class="button" href="${raw}" download>Download ${bytes(Buffer.byteLength(json))}</a>
    </div>
    ${!value && html`<p class="error">This is not the JSON of an event.</p>`}
    <pre class="raw" tabindex="0">${text.slice(0, MOST)}${isCut && '…'}</pre>
    ${isCut && html`<p>Download the event to see all of it.</p>`}`;
  const crumbs = [{ text: session.sessionId, href: `${links.ofSession('/session', session, { at: seq })}#e${seq}` }];
  return page(visit, { title: `Event ${seq}`, appName: session.appName, crumbs, body });
}

/** The JSON of an event, as a file. */
export async function eventFile(visit: Visit): Promise<Response> {
  const { seq, json } = await storedEvent(visit);
  return file(Buffer.from(json), 'application/json', `event-${seq}.json`);
}

/** A file in an event. Images can be displayed; everything else is a download. */
export async function partFile(visit: Visit): Promise<Response> {
  const { seq, json } = await storedEvent(visit);
  const part = visit.number('part') ?? 0;
  const parts = partsOf(recordOf(decode(json)?.value));
  const { data, mimeType, displayName } = recordOf(parts[part]?.['inlineData']);
  if (typeof data !== 'string') throw new Refusal(404, 'The event has no such file.');
  const name = typeof displayName === 'string' && displayName ? displayName : `event-${seq}-file-${part}`;
  return file(Buffer.from(data, 'base64'), textOrJson(mimeType), name);
}

function file(content: Buffer<ArrayBuffer>, type: string, name: string): Response {
  const headers = { ...SECURITY_HEADERS, ...fileHeaders(name, type), 'content-length': String(content.byteLength) };
  return new Response(content, { headers });
}

async function storedEvent(visit: Visit): Promise<{ seq: number; json: string }> {
  const { session, reading } = visit;
  const seq = visit.number('seq') ?? 0;
  const json = await reading.eventJson(session, seq);
  if (json === undefined) throw notFound();
  return { seq, json: withoutInternal(json) };
}

/** ADK trusts an event that has these keys: whoever has seen them could forge such an event. */
function withoutInternal(json: string): string {
  const value = decode(json)?.value;
  if (!isRecord(value)) return json.includes(INTERNAL_PREFIX) ? '' : json;
  const event = withoutInternalMetadata(value);
  return event === value ? json : JSON.stringify(event);
}
