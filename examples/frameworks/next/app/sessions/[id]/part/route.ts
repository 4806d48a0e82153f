import { chatPart } from '../../../../../chat';
import { keyOf, sessions } from '../../../../sessions';

export async function GET({ url }: Request, { params }: RouteContext<'/sessions/[id]/part'>): Promise<Response> {
  const [{ id }, { sessionService }] = await Promise.all([params, sessions()]);
  const part = await chatPart(sessionService, keyOf(id), new URL(url).searchParams);
  return Response.json(part ?? null, { status: part ? 200 : 400 });
}
