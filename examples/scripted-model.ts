import { BaseLlm, type BaseLlmConnection, type Event, type LlmRequest, type LlmResponse } from '@google/adk';

export type Content = NonNullable<Event['content']>;
export type Part = NonNullable<Content['parts']>[number];

/** Returns the model's answer to a conversation and an instruction. */
export type Script = (conversation: Content[], instruction: string) => Part[] | Promise<Part[]>;

/** A model that needs no key and no network. It remembers nothing between calls: it knows only its request. */
export class ScriptedModel extends BaseLlm {
  readonly #script: Script;

  constructor(script: Script) {
    super({ model: 'scripted' });
    this.#script = script;
  }

  override async *generateContentAsync({ contents, config }: LlmRequest): AsyncGenerator<LlmResponse, void> {
    const instruction = JSON.stringify(config?.systemInstruction ?? '');
    yield { content: { role: 'model', parts: await this.#script(contents, instruction) } };
  }

  override connect(): Promise<BaseLlmConnection> {
    return Promise.reject(new Error('A scripted model has no live connection.'));
  }
}
