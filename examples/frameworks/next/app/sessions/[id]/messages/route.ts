import { ask } from '../../../../../agent';
import { keyOf, sessions } from '../../../../sessions';

export async function POST(request: Request, { params }: RouteContext<'/sessions/[id]/messages'>): Promise<Response> {
  const [{ id }, { text }, { sessionService }] = await Promise.all([
    params,
    request.json() as Promise<{ text: string }>,
    sessions(),
  ]);
  return Response.json(await ask(sessionService, keyOf(id), text));
}
