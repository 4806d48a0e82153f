import { FunctionTool, LlmAgent, REQUEST_CONFIRMATION_FUNCTION_CALL_NAME, type Event } from '@google/adk';
import { runTurn, toMessages, type AdkServices, type Message, type SessionKey } from 'adk-mikro-orm';
import { scriptedModel } from 'adk-mikro-orm/testing';
import { setTimeout } from 'node:timers/promises';
import { z } from 'zod';

export const appName = 'support';

/** The agent that the programs in this folder serve. */
export const agent = new LlmAgent({
  name: 'support',
  instruction: 'Find orders with find_order.',
  // Instead of 'gemini-2.5-flash', which needs GEMINI_API_KEY.
  model: scriptedModel(({ contents }) => {
    const { functionResponse, text } = contents.at(-1)?.parts?.at(-1) ?? {};
    const { status, error } = functionResponse?.response ?? {};
    if (typeof status === 'string') return `Your order is ${status}.`;
    if (typeof error === 'string') return 'I have left your order as it is.';
    return { name: /cancel/i.test(text ?? '') ? 'cancel_order' : 'find_order', args: { order: 17 } };
  }),
  tools: [
    new FunctionTool({
      name: 'find_order',
      description: 'Says where an order is.',
      parameters: z.object({ order: z.number() }),
      execute: async ({ order }, context) => {
        await setTimeout(Number(process.env.TOOL_MS ?? 0), undefined, {
          ...(context?.abortSignal && { signal: context.abortSignal }),
        });
        return { order, status: 'on its way' };
      },
    }),
    new FunctionTool({
      name: 'cancel_order',
      description: 'Cancels an order. The user is asked first.',
      parameters: z.object({ order: z.number() }),
      requireConfirmation: true,
      execute: ({ order }) => ({ order, status: 'cancelled' }),
    }),
  ],
});

/** What a page sends: a message, or whether the user confirms a call that waits. The page cannot answer other calls. */
export type Said = { text: string } | { call: string; confirmed: boolean };

const partOf = (said: Said) =>
  'text' in said
    ? { text: said.text }
    : {
        functionResponse: {
          id: said.call,
          name: REQUEST_CONFIRMATION_FUNCTION_CALL_NAME,
          response: { confirmed: said.confirmed === true },
        },
      };

/**
 * @returns what the agent says, for a page; if the model fails, the last message has its `error`. Two messages at once to one session
 *   run one after the other.
 */
export async function ask(services: AdkServices, key: SessionKey, said: Said): Promise<Message[]> {
  const events: Event[] = [];
  const newMessage = { role: 'user', parts: [partOf(said)] };
  for await (const event of runTurn(services, { key, agent, newMessage, waitMs: 60_000 })) events.push(event);
  return toMessages(events);
}
