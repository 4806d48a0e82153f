import { BaseLlm, type BaseLlmConnection, type Event, type LlmRequest, type LlmResponse } from '@google/adk';

/** The model's answer to one request: a text, a call of a function, a whole content, or an error to throw. */
export type ScriptedAnswer =
  string | { name: string; args?: Record<string, unknown>; id?: string } | NonNullable<Event['content']> | Error;

/** A model that needs no key and no network. */
export interface ScriptedModel extends BaseLlm {
  /** The requests, in order. */
  readonly requests: readonly LlmRequest[];
}

/**
 * Makes a model that gives the answers in their order, one to each request. With `StreamingMode.SSE` each text also comes before
 * the answer, word by word, in partial events.
 *
 * ```ts
 * const model = scriptedModel([{ name: 'weather', args: { city: 'Oslo' } }, 'It rains in Oslo.']);
 * ```
 *
 * @param answers texts, calls of functions (`{ name, args }`), contents (`{ role, parts }`), or errors, which are thrown. Or a
 *   function that gives one for a request.
 * @returns a model for `LlmAgent`. A request after the last answer throws an Error that says so, which ADK turns into an event with
 *   this `errorMessage`. `connect` throws, too.
 */
export function scriptedModel(
  answers: readonly ScriptedAnswer[] | ((request: LlmRequest) => ScriptedAnswer | Promise<ScriptedAnswer>),
): ScriptedModel {
  return new Scripted(answers);
}

class Scripted extends BaseLlm implements ScriptedModel {
  readonly requests: LlmRequest[] = [];
  readonly #answers: Parameters<typeof scriptedModel>[0];

  constructor(answers: Parameters<typeof scriptedModel>[0]) {
    super({ model: 'scripted' });
    // A copy, so that the error counts the answers right even if the caller's list grows.
    this.#answers = typeof answers === 'function' ? answers : [...answers];
  }

  override async *generateContentAsync(request: LlmRequest, stream = false): AsyncGenerator<LlmResponse, void> {
    const answer = await this.#answerTo(request);
    if (answer instanceof Error) throw answer;
    const content = contentOf(answer);
    for (const part of stream ? (content.parts ?? []) : [])
      for (const text of part.text?.match(/^\s+|\S+\s*/g) ?? [])
        yield { content: { role: 'model', parts: [{ ...part, text }] }, partial: true };
    yield { content };
  }

  #answerTo(request: LlmRequest): ScriptedAnswer | Promise<ScriptedAnswer> {
    const answers = this.#answers;
    this.requests.push(request);
    const answer = typeof answers === 'function' ? answers(request) : answers[this.requests.length - 1];
    if (answer !== undefined) return answer;
    throw new Error(
      `The scripted model was asked ${this.requests.length} times, and has answers for ${answers.length}. ` +
        'Give scriptedModel one more answer, or look at what it was asked in its requests.',
    );
  }

  override connect(): Promise<BaseLlmConnection> {
    return Promise.reject(new Error('A scripted model has no live connection.'));
  }
}

function contentOf(answer: Exclude<ScriptedAnswer, Error>): NonNullable<Event['content']> {
  if (typeof answer === 'string') return { role: 'model', parts: [{ text: answer }] };
  // A copy: ADK gives a call an id, and the same script may be used again.
  if ('name' in answer) return { role: 'model', parts: [{ functionCall: { ...answer } }] };
  return { role: 'model', ...answer };
}
