import { FunctionTool, LlmAgent, Runner, type BaseSessionService, type Event } from '@google/adk';
import { toMessages, type Message, type SessionKey } from 'adk-mikro-orm';
import { setTimeout } from 'node:timers/promises';
import { z } from 'zod';
import { ScriptedModel } from '../scripted-model.js';

export const appName = 'support';

/** The agent that the programs in this folder serve. */
export const agent = new LlmAgent({
  name: 'support',
  instruction: 'Find orders with find_order.',
  // Instead of 'gemini-2.5-flash', which needs GEMINI_API_KEY.
  model: new ScriptedModel((conversation) => {
    const { functionResponse } = conversation.at(-1)?.parts?.at(-1) ?? {};
    const status = functionResponse?.response?.['status'];
    if (typeof status === 'string') return [{ text: `Your order is ${status}.` }];
    return [{ functionCall: { name: 'find_order', args: { order: 17 } } }];
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
  ],
});

/** @returns what the user and the agent have said, for a page. */
export async function ask(sessionService: BaseSessionService, key: SessionKey, text: string): Promise<Message[]> {
  const { events } = await sessionService.getOrCreateSession(key);
  const known = events.length;
  const runner = new Runner({ appName, agent, sessionService });
  for await (const event of runner.runAsync({ ...key, newMessage: { role: 'user', parts: [{ text }] } })) {
    if (event.errorMessage) throw new Error(event.errorMessage);
  }
  const session = await sessionService.getSession(key);
  const turn: Event[] = session?.events.slice(known) ?? [];
  return toMessages(turn);
}
