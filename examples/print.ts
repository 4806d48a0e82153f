import { getFunctionCalls, type Event, type LlmRequest, type Session } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { AdkAppState, AdkEvent, AdkSessionState, AdkUserState } from '../entities/index.js';

type Content = LlmRequest['contents'][number];
type Part = NonNullable<Content['parts']>[number];

const WIDTH = 79;

/** The longest bar. */
const BAR = 30;

const isColored = process.stdout.isTTY && !process.env.NO_COLOR;
const colored = (code: number) => (text: string) => (isColored ? `\x1b[${code}m${text}\x1b[0m` : text);
const bold = colored(1);
const dim = colored(2);
const red = colored(31);
const green = colored(32);
const cyan = colored(36);

const line = (text = '') => process.stdout.write(text + '\n');

const fitted = (text: string, width: number) => (text.length > width ? text.slice(0, width - 1) + '…' : text);

export function title({
  title = 'A conversation that survives kill -9',
  database,
  model,
}: {
  title?: string;
  database: string;
  model?: string;
}): void {
  line(bold(title));
  line(dim(`database  ${database}`));
  if (model) line(dim(`model     ${model}`));
}

export function heading(text: string): void {
  line();
  line(bold(cyan(`── ${text} `.padEnd(WIDTH, '─'))));
}

function subheading(text: string, hint = ''): void {
  line();
  line(`  ${bold(text)}${hint && dim(`  ${hint}`)}`);
}

export function note(text: string): void {
  line(dim(`  ${text}`));
}

export function said(who: string, text: string): void {
  line(`  ${bold(who.padEnd(6))} ${text}`);
}

export interface Bar {
  name: string;
  value: number;
  /** The length with the missing part, which is drawn light. */
  of?: number | undefined;
  /** Instead of the number. */
  shown?: string;
  more?: string;
}

export function bars(heading: string, hint: string, rows: readonly Bar[]): void {
  subheading(heading, hint);
  const most = Math.max(1, ...rows.map(({ value, of = value }) => of));
  for (const { name, value, of = value, shown = value.toLocaleString('en-US'), more = '' } of rows) {
    const [full, whole] = [barLength(value / most), barLength(of / most)];
    const bar = green('█'.repeat(full)) + dim('░'.repeat(whole - full)) + ' '.repeat(BAR - whole);
    line(`    ${name.padEnd(12)} ${bar} ${shown.padStart(8)}${more && dim(`  ${more}`)}`);
  }
}

/** A line of progress: overwritten on a terminal, elsewhere written only at the end. */
export function gauge(what: string, done: number, total: number): void {
  const isDone = done >= total;
  if (!isDone && !process.stdout.isTTY) return;
  const bar = '█'.repeat(barLength(done / total)).padEnd(BAR, '░');
  const start = process.stdout.isTTY ? '\r' : '';
  process.stdout.write(`${start}  ${what.padEnd(14)} ${green(bar)} ${done.toLocaleString('en-US').padStart(8)}`);
  if (isDone) line();
}

const barLength = (part: number) => (part > 0 ? Math.max(1, Math.round(part * BAR)) : 0);

/** Prints the events of a run as they happen. */
export function progress(event: Event): void {
  for (const part of event.content?.parts ?? []) {
    if (part.text) said('agent', part.text);
    if (part.functionCall) line(`  ${bold('agent')}  ${describe(part)}`);
  }
  if (event.longRunningToolIds?.length) note('       … and the run pauses until somebody answers');
}

export function killed(pid: number | undefined, signal: string | null, who = 'process 1'): void {
  line();
  line(bold(red(`  ✖ kill -9 ${pid}`)) + `  ${who} has ended by ${signal}, without a goodbye`);
}

/** Prints an event of the log. */
export function logged(seq: number, { author = '', content }: Event): void {
  for (const part of content?.parts ?? []) {
    said('log', `${seq}  ${author.padEnd(6)}  ${fitted(describe(part), WIDTH - 20)}`);
  }
}

export function modelRequest(heading: string, contents: Content[] = []): void {
  subheading(heading, contents.length === 1 ? '1 message' : `${contents.length} messages`);
  for (const { role, parts = [] } of contents) {
    for (const part of parts) line(`    ${dim((role ?? '').padEnd(6))} ${fitted(describe(part), WIDTH - 11)}`);
  }
}

/** Prints the events in the table; `killedAfter` is the last one of the killed process. */
export async function events(em: EntityManager, { appName, userId, id }: Session, killedAfter?: number): Promise<void> {
  const rows = await em.find(AdkEvent, { session: { appName, userId, id } }, { orderBy: { seq: 'asc' } });
  subheading('EVENTS', 'table adk_events');
  line(dim('    seq  author  what'));
  for (const { seq, data } of rows) {
    const event = data as Event;
    for (const [i, part] of (event.content?.parts ?? []).entries()) {
      const start = i === 0 ? `${String(seq).padStart(3)}  ${(event.author ?? '').padEnd(7)}` : ' '.repeat(12);
      const pauses = getFunctionCalls(event).some(({ id }) => id && event.longRunningToolIds?.includes(id));
      const mark = pauses ? ' (paused)' : '';
      line(`    ${start} ${fitted(describe(part), WIDTH - 17 - mark.length)}${green(mark)}`);
    }
    if (seq === killedAfter) line(red(`    ${'─── kill -9 '.padEnd(WIDTH - 4, '─')}`));
  }
}

/** Prints the state in the tables, one row for each key. */
export async function state(em: EntityManager, { appName, userId, id }: Session): Promise<void> {
  const scopes = {
    app: await em.find(AdkAppState, { appName }),
    user: await em.find(AdkUserState, { appName, userId }),
    session: await em.find(AdkSessionState, { session: { appName, userId, id } }),
  };
  subheading('STATE', 'tables adk_app_states, adk_user_states, adk_session_states');
  for (const [scope, rows] of Object.entries(scopes)) {
    for (const { key, value } of rows) {
      line(`    ${dim(scope.padEnd(8))} ${key.padEnd(13)} ${fitted(JSON.stringify(value), WIDTH - 28)}`);
    }
  }
  line(`    ${dim('temp     raw_reply     was there during the run, and is in no table')}`);
  line();
}

function describe({ text, functionCall, functionResponse }: Part): string {
  if (functionCall) return `calls ${functionCall.name}(${values(functionCall.args)})`;
  if (functionResponse) return `${functionResponse.name} → ${values(functionResponse.response)}`;
  return text === undefined ? '…' : `“${text}”`;
}

function values(record: Record<string, unknown> = {}): string {
  return Object.entries(record)
    .map(([name, value]) => `${name}: ${Array.isArray(value) ? `[${value.length} of them]` : JSON.stringify(value)}`)
    .join(', ');
}
