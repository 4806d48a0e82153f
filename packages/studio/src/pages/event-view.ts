import { Calls, isOpen, type Call } from '../../../../src/conversation/calls.js';
import { isFailedResponse } from '../../../../src/conversation/failed-response.js';
import { Ends, isLost, laneName, stampOf } from '../operations/durations.js';
import { NO_TOKENS, addTokens, tokensOf } from '../operations/tokens.js';
import type { SessionKey } from '../../../../src/index.js';
import type { TokenCounts } from '../operations/tokens.js';
import { IMAGES } from '../../../http/src/file.js';
import { isRecord, recordOf } from '../../../../src/model/json.js';
import { beginsTurn, partsOf, summaryOf } from '../../../../src/model/turn.js';
import { bytes, counted, lasted, number, shortened, textOrJson } from '../operations/words.js';
import { html, type Content, type Html } from '../html.js';
import type { Links } from '../links.js';
import type { Markdown } from '../markdown.js';
import type { Entry } from '../reading.js';
import { reasonIn } from '../recent.js';
import type { StateChange } from '../state-changes.js';
import { changeText } from './change-view.js';
import { chip, codeOf, definition, time, type Hues } from './layout.js';

/** A stored event may hold anything, whatever ADK's types promise. */
type Loose = Readonly<Record<string, unknown>>;

const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);

const textIn = (content: unknown): string =>
  partsOf({ content })
    .map(({ text }) => textOf(text) ?? '')
    .join('');

/** How many characters of a text or of JSON are shown. The page of the event has the rest. */
const MOST_TEXT = 4_000;
const MOST_JSON = 1_500;

/** How many characters of a text or of JSON are shown on a page that has become large. */
const FEW = 160;

/** How many parts of an event are shown. */
const MOST_PARTS = 20;

/** How many characters of an author's name are shown. */
const MOST_AUTHOR = 80;

/** After how many bytes of markup the next events are shown in brief. */
const LARGE_PAGE = 110_000;

/** How many bytes of markup the events of a page have at most. An event beyond is a link to its own page. */
const LARGEST_PAGE = 140_000;

/** How many bytes of markup are made of whole events at most, shown or not: making it takes time. */
const MOST_MADE = 1_000_000;

/** The largest image that is shown, in bytes. */
export const LARGEST_IMAGE = 512 * 1024;

/** @returns the author of an event, cut to what a page shows. */
export function authorOf(event: unknown): string {
  return cut(textOf(recordOf(event)['author']) ?? 'unknown', MOST_AUTHOR)[0];
}

/** The page around an event: its session, its links and what the page shows of other events. */
interface Surroundings {
  links: Links;
  session: SessionKey;
  hues: Hues;
  /** The event whose state is shown. */
  at?: number | undefined;
  /** Whether the page has the newest events: only then is a call without an answer here known to have none. */
  isNewest: boolean;
  /** Whether the visitor may answer calls that wait. */
  mayAnswer: boolean;
  /** The events whose reasons are shown at once. */
  explained?: readonly number[];
  /** What the events of the page have changed in the state, by their numbers. */
  written?: { get(seq: number): readonly StateChange[] | undefined };
  /** Renders texts of models; if absent, they are shown as they are. */
  markdown?: Markdown | undefined;
}

/**
 * The events of a page; answers are shown in their calls.
 *
 * @param pairs with the earlier events of the session, if there are calls that these events may answer.
 */
export function eventList(
  entries: readonly Entry[],
  surroundings: Surroundings,
  pairs = new Pairs(),
): Map<number, Html> {
  pairs.add(entries);
  const turns = tokensOfTurns(entries, surroundings);
  let [length, made] = [0, 0];
  const views = new Map<number, Html>();
  for (const entry of entries) {
    const isBrief = (length > LARGE_PAGE || made > MOST_MADE) && !surroundings.explained?.includes(entry.seq);
    const around = new EventView(surroundings, pairs, isBrief, turns.get(entry.seq));
    const whole = around.view(entry);
    made += whole.bytes;
    const view = entry.event && length + whole.bytes > LARGEST_PAGE ? around.link(entry) : whole;
    length += view.bytes;
    views.set(entry.seq, view);
  }
  return views;
}

/** The tokens of each turn with several calls of models that is complete on the page, by the number of its last event. */
function tokensOfTurns(entries: readonly Entry[], { isNewest }: Surroundings): Map<number, TokenCounts> {
  const turns = new Map<number, TokenCounts>();
  let turn: { sum: TokenCounts; calls: number; last: number } | undefined;
  const end = () => {
    if (turn && turn.calls > 1) turns.set(turn.last, turn.sum);
  };
  for (const { seq, event } of entries) {
    const loose = recordOf(event);
    if (beginsTurn(loose)) {
      end();
      turn = { sum: { ...NO_TOKENS }, calls: 0, last: seq };
    }
    const tokens = tokensOf(loose);
    if (!turn || !tokens) continue;
    addTokens(turn.sum, tokens);
    turn.calls++;
    turn.last = seq;
  }
  if (isNewest) end();
  return turns;
}

/** @returns an empty text if no tokens were counted. */
export function tokensText({ inputTokens, cachedTokens, outputTokens, thoughtsTokens }: TokenCounts): string {
  if (inputTokens + outputTokens + thoughtsTokens === 0) return '';
  const cached = cachedTokens > 0 ? ` (${number(cachedTokens)} cached)` : '';
  const thoughts = thoughtsTokens > 0 ? `, ${number(thoughtsTokens)} of thoughts` : '';
  return `${number(inputTokens)} tokens in${cached}, ${number(outputTokens)} out${thoughts}`;
}

interface Response {
  readonly seq: number;
  readonly response: unknown;
  /** Whether the tool has returned it, and ADK has not stored it yet. */
  readonly isEarly?: true;
}

/** What a tool has answered, in the event with this number. */
interface Answer {
  name: unknown;
  /** Undefined if its call was not read. */
  args: unknown;
  response: unknown;
  seq: number;
}

/** Pairs the calls of a page with their responses. */
export class Pairs {
  readonly #calls = new Calls();
  /** By the number of the calling event. */
  readonly #made = new Map<number, readonly Call[]>();
  readonly #responses = new Map<Call, readonly Response[]>();
  #answered = new Map<unknown, Call>();
  #numbers = new Set<number>();
  readonly #entries = new Map<number, Entry>();
  readonly #ends = new Ends();
  /** What tools have answered since the last model's event, by agent or branch. */
  readonly #given = new Map<string, readonly unknown[]>();
  readonly #answersBefore = new Map<number, readonly unknown[]>();
  /** The numbers of the events with these answers, and the calls. */
  readonly #answeredAt = new Map<unknown, { seq: number; call: Call | undefined }>();

  readonly #asked: { seq: number; text: string }[] = [];

  /** Adds the next events, which are shown. */
  add(entries: readonly Entry[]): void {
    this.#answered = new Map();
    this.#numbers = new Set(entries.map(({ seq }) => seq));
    for (const entry of entries) {
      const { seq, event } = entry;
      if (!event) continue;
      this.#entries.set(seq, entry);
      this.#ends.add(entry);
      const { made, responses, returned } = this.#calls.add(seq, event);
      this.#made.set(seq, made);
      if (beginsTurn(event)) this.#asked.push({ seq, text: textIn(recordOf(event)['content']) });
      const lane = laneName(event);
      const [before, answers] = [
        this.#given.get(lane) ?? [],
        partsOf(event).flatMap((part) => part['functionResponse'] ?? []),
      ];
      for (const each of answers) this.#answeredAt.set(each, { seq, call: responses.get(each) });
      this.#given.set(lane, answers.length > 0 ? [...before, ...answers] : []);
      if (answers.length === 0 && before.length > 0) this.#answersBefore.set(seq, before);
      if (returned) {
        this.#answered.set(event, returned);
        this.#responses.set(returned, [{ seq, response: returned.response, isEarly: true }]);
      }
      for (const [response, call] of responses) {
        if (call.isMissing) continue;
        this.#answered.set(response, call);
        const known = this.responsesTo(call).filter(({ isEarly }) => !isEarly);
        this.#responses.set(call, [...known, { seq, response: recordOf(response)['response'] }]);
      }
    }
  }

  /** @param nth the index of the call among those of the event. */
  call(seq: number, nth: number): Call | undefined {
    return this.#made.get(seq)?.[nth];
  }

  responsesTo(call: Call | undefined): readonly Response[] {
    return (call && this.#responses.get(call)) ?? [];
  }

  /** @param response a function response, or an event with what a tool returned. @returns the call that it belongs to. */
  answeredBy(response: unknown): Call | undefined {
    return this.#answered.get(response);
  }

  /** @returns how long a call took until the event that answers it, in ms, as the waterfall shows it. */
  took(call: Call, answer: number): number | undefined {
    const [made, answered] = [this.#ends.of(call.seq), this.#ends.of(answer)];
    return made === undefined || answered === undefined ? undefined : Math.max(0, answered - made);
  }

  /** @returns when an event had ended, in ms since 1970, as the waterfall shows it. */
  endOf(seq: number): number | undefined {
    return this.#ends.of(seq);
  }

  /** @returns how long the model took that made an event, in ms; undefined if nobody knows. */
  modelMs(seq: number): number | undefined {
    const [event, end] = [this.#entries.get(seq)?.event, this.#ends.of(seq)];
    return event && end !== undefined && end > stampOf(event) ? end - stampOf(event) : undefined;
  }

  /** @returns what tools answered just before the model made an event. */
  answersTo(seq: number): Answer[] {
    return (this.#answersBefore.get(seq) ?? []).flatMap((answer) => this.#answer(answer) ?? []);
  }

  /** What a tool has answered last. */
  get newestAnswer(): Answer | undefined {
    return this.#answer([...this.#answeredAt.keys()].at(-1));
  }

  #answer(answer: unknown): Answer | undefined {
    const { name, response } = recordOf(answer);
    const at = this.#answeredAt.get(answer);
    return at && { name, args: at.call?.args, response, seq: at.seq };
  }

  /** @returns what the user said last before an event, as far as it was added. */
  askedBefore(seq: number): { seq: number; text: string } | undefined {
    return this.#asked.findLast((each) => each.seq < seq);
  }

  /** @returns the values that tools gave to the model that made an event, in their answers just before it. */
  givenTo(seq: number, tool: string, key: string): unknown[] {
    return (this.#answersBefore.get(seq) ?? []).flatMap((answer) => {
      const { name, response } = recordOf(answer);
      const values = recordOf(response)[key];
      return name === tool && Array.isArray(values) ? (values as unknown[]) : [];
    });
  }

  isShown(call: Call | undefined): call is Call {
    return call !== undefined && this.#numbers.has(call.seq);
  }
}

/** Identifies the markup of a call, into which the page's script moves a later answer. */
const idOf = ({ seq, number }: Call) => `c${seq}-${number}`;

class EventView {
  #seq = 0;

  /** @param turn the tokens of the turn, if the event is its last one. */
  constructor(
    readonly around: Surroundings,
    readonly pairs: Pairs,
    readonly isBrief: boolean,
    readonly turn: TokenCounts | undefined,
  ) {}

  view(entry: Entry): Html {
    const { seq, to, event } = entry;
    this.#seq = seq;
    if (!event) {
      const numbers = to === seq ? `Event ${seq}` : `Events ${seq} to ${to}`;
      return html`<li class="event damaged" id="e${seq}" data-seq="${to}">
        <p>${numbers} cannot be read. <a href="${this.#link('/repair')}">See what is damaged</a></p>
      </li>`;
    }
    const loose = recordOf(event);
    const author = authorOf(event);
    const isUser = author === 'user';
    const branch = textOf(loose['branch']);
    const depth = branch === undefined ? 0 : Math.min(branch.split('.').length - 1, 3);
    const parts = partsOf(loose);
    const returned = this.pairs.answeredBy(event);
    const content = [
      ...this.#compaction(loose),
      ...(returned ? [this.#answer(returned.name, returned.response, returned)] : []),
      ...parts
        .slice(0, MOST_PARTS)
        .map((part, i) =>
          this.#part(part, i, loose, parts.slice(0, i).filter((each) => isRecord(each['functionCall'])).length),
        ),
    ];
    const rest = [this.#transcription(loose), this.#error(loose), this.#actions(loose)].flat();
    // An event that only answers calls stays in the list: links lead to it, and to the state as of it.
    const isFolded = returned
      ? this.pairs.isShown(returned)
      : parts.length > 0 && parts.every((part) => this.pairs.isShown(this.pairs.answeredBy(part['functionResponse'])));
    const isSlim = isFolded && !isUser && rest.every((each) => each === false || each === undefined);
    const isCurrent = this.around.at === seq;
    return html`<li
      class="event ${this.around.hues.of(author)} depth-${depth} ${isCurrent && 'current'} ${isSlim && 'slim'}"
      id="e${seq}"
      data-seq="${seq}"
      data-branch="${branch}"
    >
      <div class="meta">
        <span class="author"><bdi>${author}</bdi></span>
        ${
          branch !== undefined &&
          html`<a
            class="chip branch"
            href="${this.#link('/session', { branch, at: seq })}#e${seq}"
            title="Only this branch"
            ><bdi>${branch}</bdi></a
          >`
        }
        ${time(numberOf(loose['timestamp']))}
        <span class="tools">
          <a href="${this.#link('/session', { at: seq })}#e${seq}" title="The state as of this event">#${seq}</a>
          <a href="${this.#link('/event', { seq })}">JSON<span class="hidden"> of event ${seq}</span></a>
        </span>
      </div>
      <div class="body">
        ${content} ${parts.length > MOST_PARTS && this.#rest(`${parts.length - MOST_PARTS} more parts`)} ${rest}
        ${isModels(loose) && this.#why(loose)}
      </div>
    </li>`;
  }

  /** A link to the page of an event, for an event that is too large for this page. */
  link({ seq, event }: Entry): Html {
    this.#seq = seq;
    const author = authorOf(event);
    return html`<li class="event ${this.around.hues.of(author)} depth-0" id="e${seq}" data-seq="${seq}">
      <div class="meta">
        <span class="author"><bdi>${author}</bdi></span>
      </div>
      <div class="body">${this.#rest(`Show event #${seq}`)}</div>
    </li>`;
  }

  #link(path: string, query?: Record<string, number | string>): string {
    return this.around.links.ofSession(path, this.around.session, query);
  }

  #rest(text: string): Html {
    return html`<p><a href="${this.#link('/event', { seq: this.#seq })}">${text}</a></p>`;
  }

  /** A summary that the model gets in place of older events. */
  #compaction(event: Loose): Html[] {
    const summary = summaryOf(event);
    if (!summary) return [];
    const span = html`${time(numberOf(summary.startTime))} to ${time(numberOf(summary.endTime))}`;
    return [
      html`<p class="note">Compaction: for the model this replaces the events from ${span}.</p>`,
      this.#written(textOf(summary.content) ?? textIn(summary.content)),
    ];
  }

  /** All that is stored of why a model answered so. What ADK does not store is named, too: nobody can find it elsewhere. */
  #why(event: Loose): Html {
    const { model, finishReason, counts, tokens, answers, memories, files, thoughts, line } = reasonsOf(
      event,
      this.#seq,
      this.pairs,
    );
    const facts = [model, finishReason, tokens].filter(Boolean).join(' · ');
    const used = counts ?? NO_TOKENS;
    if (this.isBrief) return html`<p class="note">${line}</p>`;
    const said = ({ content }: Loose) => textOf(content) ?? textIn(content);
    const list = (items: readonly Content[]) =>
      items.length > 0 &&
      html`<ul>
        ${items.slice(0, MOST_PARTS).map((item) => html`<li>${item}</li>`)}
      </ul>`;
    const asked = this.pairs.askedBefore(this.#seq);
    const isThoughtless = thoughts.length === 0 && used.thoughtsTokens === 0;
    const rows: [name: string, value: Content][] = [
      [
        'Question',
        asked && html`<bdi>${shortened(asked.text || 'a file', FEW)}</bdi> <a href="#e${asked.seq}">#${asked.seq}</a>`,
      ],
      [
        'Answers of tools',
        list(answers.map((answer) => html`${answerInLine(answer, FEW)} <a href="#e${answer.seq}">#${answer.seq}</a>`)),
      ],
      [
        'Memories',
        list(
          memories.map(
            (each) =>
              html`<bdi>${shortened(said(each), FEW)}</bdi>
                <span class="dim"><bdi>${textOf(each['author'])}</bdi></span>`,
          ),
        ),
      ],
      [
        'Files',
        list(
          files.map(
            (name) => html`<a href="${this.#link('/files', { file: name })}"><bdi>${shortened(name, FEW)}</bdi></a>`,
          ),
        ),
      ],
      [
        'Thoughts',
        list(thoughts.map((text) => html`<bdi>${shortened(text, FEW)}</bdi>`)) ||
          // Models bill for thoughts that they do not show.
          (used.thoughtsTokens > 0 && html`<span class="dim">text not stored</span>`),
      ],
      ['Model', facts && html`<bdi>${facts}</bdi>`],
    ];
    const view = rows.flatMap(([name, value]) => (value ? definition(name, value) : []));
    const none = [
      answers.length === 0 && 'answers of tools',
      memories.length === 0 && 'memories',
      files.length === 0 && 'files',
      isThoughtless && counts && 'thoughts',
    ].filter(Boolean);
    // ADK stores neither which state is read nor what `preload_memory` adds.
    const missing = [
      isThoughtless && !counts && 'thoughts',
      !model && 'model',
      !finishReason && 'finish reason',
      !tokens && 'tokens',
      'preloaded memories',
      'which state it read',
    ].filter(Boolean);
    const note = html`<p class="note">
      ${none.length > 0 && `None: ${none.join(', ')}.`} Not recorded: ${missing.join(', ')}.
      <a href="${this.#link('/state', { at: this.#seq - 1 })}">All state before it</a>
    </p>`;
    return fold(
      'why',
      line,
      html`<dl class="delta">${view}</dl>
        ${note}`,
      undefined,
      this.around.explained?.includes(this.#seq),
    );
  }

  #part(part: Loose, index: number, { author }: Loose, nthCall: number): Html {
    const { text, thought, functionCall, functionResponse, inlineData, fileData, executableCode, codeExecutionResult } =
      part;
    if (isRecord(functionCall)) return this.#call(functionCall, this.pairs.call(this.#seq, nthCall));
    if (isRecord(functionResponse))
      return this.#answer(
        functionResponse['name'],
        functionResponse['response'],
        this.pairs.answeredBy(functionResponse),
      );
    if (typeof text === 'string') {
      const view = author === 'user' ? this.#text(text) : this.#written(text);
      return thought === true ? fold('thought', 'Thought', view) : view;
    }
    if (isRecord(inlineData)) return this.#file(inlineData, index);
    if (isRecord(fileData)) return this.#reference(fileData);
    if (isRecord(executableCode))
      return fold(
        'code',
        html`Code <bdi>${textOf(executableCode['language'])}</bdi>`,
        this.#pre(textOrJson(executableCode['code'])),
      );
    if (isRecord(codeExecutionResult))
      return fold(
        'code',
        html`Result of the code: <bdi>${textOf(codeExecutionResult['outcome'])}</bdi>`,
        this.#pre(textOrJson(codeExecutionResult['output'])),
      );
    return this.#json(part);
  }

  #call({ name, args }: Loose, call: Call | undefined): Html {
    const responses = this.pairs.responsesTo(call);
    const waits = call?.isLongRunning === true && isOpen(call);
    const last = responses.at(-1);
    const status = waits
      ? chip(this.around.isNewest ? 'waits for an answer' : 'long-running', 'warn pending')
      : last
        ? this.#mark(call, last)
        : chip(this.around.isNewest ? this.#pending(call) : 'no answer on this page', 'pending');
    return fold(
      'call',
      html`<span class="what">Call</span> ${codeOf(textOf(name) ?? 'a function')} ${inLine(args)} ${status}`,
      html`${waits && this.around.mayAnswer && call.id && html`<p><a class="button" href="${this.#link('/answer', { at: call.seq, call: call.id })}">Answer</a></p>`}
        <h4>Arguments</h4>
        ${this.#json(args ?? {})}
        ${responses.map(
          ({ seq, response }) =>
            html`<h4>Answer <a href="#e${seq}">#${seq}</a></h4>
              ${this.#json(response)}`,
        )}`,
      call && idOf(call),
      // Links from the lists of failures lead here.
      this.around.at === this.#seq && last !== undefined && isFailedResponse(last.response),
    );
  }

  #pending(call: Call | undefined): string {
    const since = call && this.pairs.endOf(call.seq);
    return since !== undefined && isLost(since, Date.now()) ? 'never answered' : 'no answer yet';
  }

  /** Whether a tool has succeeded, how long it took, the number of its answer, and why it failed. */
  #mark(call: Call | undefined, { seq, response }: Response): Html {
    const ms = call && this.pairs.took(call, seq);
    const took = ms === undefined ? '' : ` ${lasted(ms)}`;
    return isFailedResponse(response)
      ? html`<span class="mark"
          >${chip(`✗ failed${took} #${seq}`, 'bad')}
          <span class="args"><bdi>${reasonIn(recordOf(response))}</bdi></span></span
        >`
      : chip(`✓${took} #${seq}`, 'mark good');
  }

  #answer(name: unknown, response: unknown, call: Call | undefined): Html {
    if (this.pairs.isShown(call))
      return html`<p class="note">
        Answer of <code><bdi>${textOf(name)}</bdi></code> to <a href="#e${call.seq}">#${call.seq}</a>
      </p>`;
    return html`<div class="answer" data-call="${call && idOf(call)}" data-closes="${call && !isOpen(call) && 'true'}">
      ${fold(
        'call',
        html`<span class="what">Answer of</span> ${codeOf(textOf(name) ?? 'a function')}
          ${this.#mark(call, { seq: this.#seq, response })}`,
        this.#json(response),
      )}
    </div>`;
  }

  #file({ mimeType, data, displayName }: Loose, index: number): Html {
    const length = typeof data === 'string' ? Math.floor((data.length * 3) / 4) : 0;
    const name = textOf(displayName) ?? textOf(mimeType) ?? 'File';
    const href = this.#link('/part', { seq: this.#seq, part: index });
    const link = html`<a href="${href}" download>Download <bdi>${name}</bdi></a>
      <span class="dim">${bytes(length)}</span>`;
    if (!IMAGES.includes(mimeType) || length > LARGEST_IMAGE) return html`<p class="file">${link}</p>`;
    return html`<figure>
      <img src="${href}" alt="${name}" loading="lazy" />
      <figcaption>${link}</figcaption>
    </figure>`;
  }

  #reference({ fileUri, mimeType, displayName }: Loose): Html {
    const uri = textOf(fileUri) ?? '';
    const name = html`<bdi>${textOf(displayName) ?? uri}</bdi>`;
    // Another scheme may run code.
    const link = /^https?:\/\//i.test(uri)
      ? html`<a href="${uri}" rel="noreferrer noopener nofollow" target="_blank">${name}</a>`
      : name;
    return html`<p class="file">File ${link} <span class="dim">${textOf(mimeType)}</span></p>`;
  }

  #transcription({ inputTranscription, outputTranscription }: Loose): Content {
    const text = textOf(recordOf(inputTranscription)['text']) ?? textOf(recordOf(outputTranscription)['text']);
    return (
      text !== undefined &&
      html`<p class="note">Spoken:</p>
        ${this.#text(text)}`
    );
  }

  #error({ errorCode, errorMessage, interrupted }: Loose): Content {
    const what = [textOf(errorCode), textOf(errorMessage)].filter((text) => text !== undefined).join(': ');
    return [
      what !== '' && html`<p class="error"><strong>Error</strong> <bdi>${cut(what, MOST_JSON)[0]}</bdi></p>`,
      interrupted === true && chip('interrupted', 'warn'),
    ];
  }

  #actions(event: Loose): Content {
    const {
      artifactDelta,
      transferToAgent,
      escalate,
      requestedAuthConfigs,
      requestedToolConfirmations,
      endOfAgent,
      rewindBeforeInvocationId,
    } = recordOf(event['actions']);
    const { finishReason } = event;
    const chips = [
      textOf(transferToAgent) !== undefined && chip(html`transfers to <bdi>${textOf(transferToAgent)}</bdi>`),
      escalate === true && chip('escalates'),
      endOfAgent === true && chip('agent has ended'),
      textOf(rewindBeforeInvocationId) !== undefined &&
        chip(html`for the model, goes back to before <bdi>${textOf(rewindBeforeInvocationId)}</bdi>`),
      Object.keys(recordOf(requestedToolConfirmations)).length > 0 && chip('asks for a confirmation', 'warn'),
      Object.keys(recordOf(requestedAuthConfigs)).length > 0 && chip('asks for a login', 'warn'),
      ...Object.entries(recordOf(artifactDelta))
        .slice(0, MOST_PARTS)
        .map(([name, version]) => chip(html`artifact <bdi>${name}</bdi> ${textOrJson(version)}`)),
      textOf(finishReason) !== undefined &&
        finishReason !== 'STOP' &&
        chip(html`ended by <bdi>${textOf(finishReason)}</bdi>`, 'warn'),
      this.turn !== undefined && chip(`in this turn ${tokensText(this.turn)}`, 'quiet'),
    ];
    const changes = this.around.written?.get(this.#seq) ?? [];
    const state = changes.slice(0, MOST_PARTS).map((change) => {
      const href = this.#link('/state', { key: change.key });
      return definition(html`<a class="quiet" href="${href}">${change.key}</a>`, changeText(change, FEW / 2));
    });
    return [
      chips.some((each) => each !== false) && html`<p class="chips">${chips}</p>`,
      changes.length > 0 && html`<dl class="delta" aria-label="State written">${state}</dl>`,
      changes.length > MOST_PARTS && this.#rest(`${changes.length - MOST_PARTS} more keys of the state`),
    ];
  }

  /** A text of a model. */
  #written(text: string): Html {
    return this.#text(text, this.around.markdown);
  }

  #text(text: string, markdown?: Markdown): Html {
    const [shown, isCut] = cut(text, this.isBrief ? FEW : MOST_TEXT);
    const whole = isCut ? `${shown}…` : shown;
    return html`${markdown ? markdown(whole) : html`<div class="text" dir="auto">${whole}</div>`}
    ${isCut && this.#rest(`Show all (${bytes(text.length)})`)}`;
  }

  #json(value: unknown): Html {
    return this.#pre(JSON.stringify(value, null, 2) ?? 'undefined');
  }

  #pre(text: string): Html {
    const [shown, isCut] = cut(text, this.isBrief ? FEW : MOST_JSON);
    return html`<pre tabindex="0" dir="auto">${shown}${isCut && '…'}</pre>
      ${isCut && this.#rest(`Show all (${bytes(text.length)})`)}`;
  }
}

/** What is stored of why a model made an event, and the line that sums it up. */
function reasonsOf(event: Loose, seq: number, pairs: Pairs) {
  const counts = tokensOf(event);
  // Without tokens no model was asked.
  const ms = counts && pairs.modelMs(seq);
  const model = [textOf(event['modelVersion']), ms !== undefined && lasted(ms)].filter(Boolean).join(', ');
  const finishReason = textOf(event['finishReason']);
  const tokens = tokensText(counts ?? NO_TOKENS);
  const answers = pairs.answersTo(seq);
  const memories = pairs.givenTo(seq, 'load_memory', 'memories').map(recordOf);
  const files = pairs.givenTo(seq, 'load_artifacts', 'artifact_names').flatMap((name) => textOf(name) ?? []);
  const thoughts = partsOf(event).flatMap(({ text, thought }) => (thought === true ? (textOf(text) ?? []) : []));
  const summary = [
    model || 'model not recorded',
    finishReason,
    tokens,
    answers.length > 0 &&
      `after ${counted(answers.length, 'answer')} of ${[...new Set(answers.map(({ name }) => textOf(name)))].slice(0, 3).join(', ')}`,
    memories.length > 0 && counted(memories.length, 'memory', 'memories'),
    files.length > 0 && counted(files.length, 'file'),
    thoughts.length > 0 && counted(thoughts.length, 'thought'),
  ];
  const line = html`<span class="what">Why</span> <bdi class="brief">${summary.filter(Boolean).join(' · ')}</bdi>`;
  return { model, finishReason, counts, tokens, answers, memories, files, thoughts, line };
}

/** @returns in one line why a model made an event, as the event shows it until it is opened. */
export const whyInLine = (event: unknown, seq: number, pairs: Pairs): Html =>
  reasonsOf(recordOf(event), seq, pairs).line;

/** @param most how many characters are shown of the response. @returns a call, and what its tool has answered. */
export function answerInLine({ name, args, response }: Answer, most: number): Html {
  const isFailed = isFailedResponse(response);
  const text = isFailed ? reasonIn(recordOf(response)) : textOrJson(response);
  return html`${codeOf(textOf(name) ?? 'a function')}${args !== undefined && html`(${inLine(args, FEW / 2)})`}
    ${isFailed ? chip('✗', 'bad') : '→'} <span class="args"><bdi>${shortened(text, most)}</bdi></span>`;
}

/** Whether a model made an event, or failed to: it is not the user's, and says more than what tools have answered. */
export function isModels(event: Loose): boolean {
  const { author, usageMetadata, errorCode } = event;
  const isSaid = partsOf(event).some((part) => part['functionResponse'] === undefined);
  return author !== 'user' && (isSaid || isRecord(usageMetadata) || Boolean(errorCode));
}

/** @returns the newest event that a model made, and the newest one since the last question in which it said something. */
export function newestOfModels(entries: readonly Entry[]): number[] {
  const made = entries.filter(({ event }) => event && isModels(recordOf(event)));
  const newest = made.at(-1);
  if (!newest) return [];
  const asked = entries.findLast(({ seq, event }) => seq < newest.seq && event && beginsTurn(event))?.seq ?? 0;
  const isText = ({ text, thought }: Loose) => textOf(text) !== undefined && thought !== true;
  const said = made.findLast(({ seq, event }) => seq > asked && event && partsOf(event).some(isText));
  return [...new Set([said?.seq ?? newest.seq, newest.seq])];
}

/** The arguments of a call, in the line of its name. */
export function inLine(args: unknown, most = FEW): Content {
  const text = Object.entries(recordOf(args))
    .map(([name, value]) => `${name}: ${JSON.stringify(value) ?? 'undefined'}`)
    .join(', ');
  const [shown, isCut] = cut(text, most);
  return text !== '' && html`<span class="args"><bdi>${shown}${isCut && '…'}</bdi></span>`;
}

const numberOf = (value: unknown) => (typeof value === 'number' ? value : undefined);

function fold(kind: string, summary: Content, content: Html, id?: string, isOpened = false): Html {
  return html`<details class="fold ${kind}" ${id !== undefined && html`id="${id}"`} ${isOpened && html`open`}>
    <summary>${summary}</summary>
    <div>${content}</div>
  </details>`;
}

/** @returns the first characters of a text, and whether any were cut off. */
function cut(text: string, length: number): [string, boolean] {
  return text.length <= length ? [text, false] : [text.slice(0, length), true];
}
