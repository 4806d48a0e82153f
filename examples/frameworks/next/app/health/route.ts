import { appName } from '../../../agent';
import { sessions } from '../../sessions';

export async function GET(): Promise<Response> {
  const { sessionService } = await sessions();
  await sessionService.getAppState({ appName }); // the server answers, and has our tables
  return Response.json({ status: 'ok' });
}
