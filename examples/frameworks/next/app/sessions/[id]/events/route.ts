import { eventStream } from '../../../../../event-stream';
import { keyOf, sessions } from '../../../../sessions';

export async function GET({ headers }: Request, { params }: RouteContext<'/sessions/[id]/events'>): Promise<Response> {
  const [{ id }, { log }] = await Promise.all([params, sessions()]);
  return eventStream(log, keyOf(id), headers.get('last-event-id') ?? undefined);
}
