import { eventStream } from '../../../../../event-stream';
import { keyOf, sessions } from '../../../../sessions';

export async function GET(
  { headers, url }: Request,
  { params }: RouteContext<'/sessions/[id]/events'>,
): Promise<Response> {
  const [{ id }, { log }] = await Promise.all([params, sessions()]);
  // The event after which a page begins to follow. Later, the browser sends the last id that it received.
  const after = new URL(url).searchParams.get('after') ?? undefined;
  return eventStream(log, keyOf(id), headers.get('last-event-id') ?? after);
}
