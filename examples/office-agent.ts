import { FunctionTool, LlmAgent, type LlmRequest } from '@google/adk';
import { z } from 'zod';
import { scriptedModel, type ScriptedAnswer } from '../src/testing/index.js';
import type { Bank } from './bank.js';

/** An agent with a tool that must not do its work twice. */
export function officeAgent(bank: Bank): LlmAgent {
  return new LlmAgent({
    name: 'office',
    model: scriptedModel(script),
    instruction: 'Pay invoices with pay_invoice. If you do not know whether one is paid, ask find_payment first.',
    tools: [
      new FunctionTool({
        name: 'pay_invoice',
        description: 'Pays an invoice.',
        parameters: z.object({ invoice: z.string(), euros: z.number() }),
        execute: (payment) => bank.pay(payment),
      }),
      new FunctionTool({
        name: 'find_payment',
        description: 'Says whether an invoice is paid.',
        parameters: z.object({ invoice: z.string() }),
        execute: async ({ invoice }) => {
          const payment = (await bank.payments()).find((payment) => payment.invoice === invoice);
          return payment ? { paid: true, euros: payment.euros } : { paid: false };
        },
      }),
    ],
  });
}

/** What a model would say. It knows nothing but the conversation. */
function script({ contents }: LlmRequest): ScriptedAnswer {
  const parts = contents.flatMap((content) => content.parts ?? []);
  const calls = parts.flatMap(({ functionCall }) => functionCall ?? []);
  const responses = parts.flatMap(({ functionResponse }) => functionResponse ?? []);
  // Models refuse this, too. Without the repair, a session whose worker was killed in a tool could not continue.
  if (calls.length !== responses.length) throw new Error('A call has no response.');

  const { response } = responses.at(-1) ?? {};
  if (response?.error) return { name: 'find_payment', args: { invoice: '17' } };
  if (!response || response.paid === false) return { name: 'pay_invoice', args: { invoice: '17', euros: 240 } };
  return 'Invoice 17 is paid: 240 euros.';
}
