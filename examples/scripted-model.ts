import { BaseLlm, type BaseLlmConnection, type Event, type LlmRequest, type LlmResponse } from '@google/adk';

export type Content = NonNullable<Event['content']>;
export type Part = NonNullable<Content['parts']>[number];

/** Says what a model answers to a conversation. */
export type Script = (conversation: Content[]) => Part[] | Promise<Part[]>;

/** A model that needs no key and no network. It keeps nothing between calls: all it knows is what it is shown. */
export class ScriptedModel extends BaseLlm {
  readonly #script: Script;

  constructor(script: Script) {
    super({ model: 'scripted' });
    this.#script = script;
  }

  override async *generateContentAsync({ contents }: LlmRequest): AsyncGenerator<LlmResponse, void> {
    yield { content: { role: 'model', parts: await this.#script(contents) } };
  }

  override connect(): Promise<BaseLlmConnection> {
    return Promise.reject(new Error('A scripted model has no live connection.'));
  }
}
