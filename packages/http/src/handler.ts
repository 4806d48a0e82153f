import { AdkMikroOrmError } from '../../../src/index.js';
import { NOTHING_TO_SHOW, listenerOf } from './listener.js';

/** A response without content. */
export const refusal = (status: number, headers = {}): Response =>
  new Response(null, { status, headers: { ...NOTHING_TO_SHOW, ...headers } });

/**
 * Answers requests with `answer`, and never rejects.
 *
 * @param statusOf returns the status for an error of the request; undefined for one of ours.
 * @param report gets errors of ours, which are answered with 500 or 503.
 */
export function handlerOf(
  answer: (request: Request) => Promise<Response>,
  statusOf: (error: unknown) => number | undefined,
  report: (error: unknown) => void,
) {
  const fetch = async (request: Request): Promise<Response> => {
    try {
      return await answer(request);
    } catch (error) {
      const status = statusOf(error);
      if (status !== undefined) return refusal(status);
      report(error);
      return refusal(error instanceof AdkMikroOrmError ? 503 : 500);
    }
  };
  return { fetch, listener: listenerOf(fetch) };
}
