import { eventStream } from '../../../../../event-stream';
import { keyOf, sessions } from '../../../../sessions';

export async function GET(request: Request): Promise<Response> {
  const { log } = await sessions();
  return eventStream(log, keyOf).fetch(request);
}
