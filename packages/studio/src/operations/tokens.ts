import { isRecord } from '../../../../src/model/json.js';

/** The tokens of calls of models, as the events count them in their `usageMetadata`. */
export interface TokenCounts {
  /** Sent to the models, including cached content and results of the models' own tools. */
  inputTokens: number;
  /** The part of `inputTokens` that was cached. */
  cachedTokens: number;
  /** Answered by the models, without thoughts. */
  outputTokens: number;
  thoughtsTokens: number;
}

export const NO_TOKENS: Readonly<TokenCounts> = { inputTokens: 0, cachedTokens: 0, outputTokens: 0, thoughtsTokens: 0 };

/** @returns undefined if an event has no counts, like those of users. */
export function tokensOf(event: object): TokenCounts | undefined {
  const usage: unknown = 'usageMetadata' in event ? event.usageMetadata : undefined;
  if (!isRecord(usage)) return undefined;
  const count = (name: string) => {
    const value = usage[name];
    return Number.isSafeInteger(value) && Number(value) > 0 ? Number(value) : 0;
  };
  return {
    inputTokens: count('promptTokenCount') + count('toolUsePromptTokenCount'),
    cachedTokens: count('cachedContentTokenCount'),
    outputTokens: count('candidatesTokenCount'),
    thoughtsTokens: count('thoughtsTokenCount'),
  };
}

/** Adds tokens to a sum. */
export function addTokens(sum: TokenCounts, tokens: TokenCounts): void {
  sum.inputTokens += tokens.inputTokens;
  sum.cachedTokens += tokens.cachedTokens;
  sum.outputTokens += tokens.outputTokens;
  sum.thoughtsTokens += tokens.thoughtsTokens;
}
