import { ask, type Said } from '../../../../../agent';
import { keyOf, sessions } from '../../../../sessions';

export async function POST(request: Request, { params }: RouteContext<'/sessions/[id]/messages'>): Promise<Response> {
  const [{ id }, said, services] = await Promise.all([params, request.json() as Promise<Said>, sessions()]);
  return Response.json(await ask(services, keyOf(id), said));
}
