import { FunctionTool, LlmAgent, LongRunningFunctionTool, PRELOAD_MEMORY, type LlmRequest } from '@google/adk';
import { z } from 'zod';
import { scriptedModel, type ScriptedAnswer } from '../src/testing/index.js';

const FLIGHTS = [
  { flight: 'TP 1271', departs: '06:25', price: 189 },
  { flight: 'OS 351', departs: '09:40', price: 214 },
  { flight: 'TP 1273', departs: '17:55', price: 142 },
];

/** An ordinary tool. What it writes to the state is stored with the event that has its result. */
const findFlights = new FunctionTool({
  name: 'find_flights',
  description: 'Finds the flights between two airports on a day.',
  parameters: z.object({ from: z.string(), to: z.string(), day: z.string() }),
  execute: ({ from }, context) => {
    const searches = context?.state.get<number>('app:searches') ?? 0;
    context?.state.set('flights', FLIGHTS); // of this session
    context?.state.set('user:home_airport', from); // of this user, in all of their sessions
    context?.state.set('app:searches', searches + 1); // of everybody
    context?.state.set('temp:raw_reply', '<flights>…</flights>'); // of this run, never stored
    return { flights: FLIGHTS };
  },
});

/** A long-running tool that returns nothing yet: the run ends here, and continues when somebody sends the result. */
const askUser = new LongRunningFunctionTool({
  name: 'ask_user',
  description: 'Asks the user a question. The answer comes later.',
  parameters: z.object({ question: z.string() }),
  execute: () => undefined,
});

const bookFlight = new FunctionTool({
  name: 'book_flight',
  description: 'Books a flight.',
  parameters: z.object({ flight: z.string(), seat: z.string() }),
  execute: async ({ flight, seat }, context) => {
    const booking = { flight, seat, reference: 'K7QX2M' };
    context?.state.set('booking', booking);
    await context?.saveArtifact('ticket.txt', { text: `K7QX2M: ${flight}, a ${seat} seat` });
    return booking;
  },
});

/** Answers like a model. It knows only its request, so it can finish only if the whole conversation was stored. */
function script({ contents, config }: LlmRequest): ScriptedAnswer {
  const parts = contents.flatMap((content) => content.parts ?? []);
  if (parts[0]?.text?.startsWith('Which seat'))
    return JSON.stringify(config?.systemInstruction).includes('window seat') ? 'A window seat.' : 'I do not know.';
  const has = (tool: string) => parts.some((part) => part.functionResponse?.name === tool);

  if (has('book_flight') && has('ask_user') && has('find_flights'))
    return 'Booked: OS 351 on Friday at 09:40, a window seat. Reference K7QX2M.';
  if (has('ask_user') && has('find_flights'))
    return { name: 'book_flight', args: { flight: 'OS 351', seat: 'window' } };
  if (has('find_flights')) return { name: 'ask_user', args: { question: 'At 06:25, 09:40 or 17:55?' } };
  return { name: 'find_flights', args: { from: 'VIE', to: 'LIS', day: 'Friday' } };
}

/** @param onModelRequest called with each request to the model, whichever model it is. */
export function travelAgent(onModelRequest: (request: LlmRequest) => void): LlmAgent {
  return new LlmAgent({
    name: 'travel',
    model: process.env.GEMINI_API_KEY ? 'gemini-2.5-flash' : scriptedModel(script),
    instruction:
      'Find flights with find_flights, then ask the user which one with ask_user, then book it with book_flight and ' +
      'confirm. Ask questions only with ask_user, never in your own words. What you remember of the user answers other questions.',
    tools: [findFlights, askUser, bookFlight, PRELOAD_MEMORY],
    beforeModelCallback: ({ request }) => {
      onModelRequest(request);
      return undefined;
    },
  });
}
