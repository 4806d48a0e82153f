import { MikroOrmSessionService, type OpenCall } from '../../../../src/index.js';
import { askedAbout, isConfirmation, responseIn, storeAnswer } from '../../../studio/src/internal.js';
import { quoted } from '../../../studio/src/operations/words.js';
import { Unfinished, UsageError } from '../errors.js';
import type { Work } from '../run.js';

type Args = [string, string, string, string, string | undefined, { approve?: true; reject?: true }];

/** Stores a person's answer to a call that waits. */
export const answer: Work<Args> = async (
  { em, codec, services, terminal },
  ...[appName, userId, sessionId, id, text, { approve, reject }]
) => {
  const key = { appName, userId, sessionId };
  const response = responseIn(text ?? '');
  const service = new MikroOrmSessionService(em, { ...codec, ...services, onAnsweredCall: 'reject' });
  let call: OpenCall | undefined;
  let after: string | undefined;
  do {
    const page = await service.findOpenCalls({ ...key, limit: 1_000, ...(after !== undefined && { after }) });
    call = page.calls.findLast((each) => each.id === id) ?? call;
    after = page.next;
  } while (after !== undefined);
  if (!call)
    throw new Unfinished(
      `No call ${quoted(id)} of this session waits for a person. See: waiting --app ${quoted(appName)} --user ${quoted(userId)}`,
    );
  const { name, args = {} } = call;
  const { tool = name } = askedAbout(name, args) ?? {};
  const isDecided = approve === true || reject === true;
  if (isConfirmation({ name }) !== isDecided)
    throw new UsageError(
      isDecided
        ? `${name} is not a confirmation: answer it with a JSON object, such as '{"answer":"yes"}'.`
        : `Whether ${quoted(tool)} may run is a question: say --approve or --reject.`,
    );
  await storeAnswer(service, key, { id, name, args }, { response, isApproved: approve });
  await terminal.result({ ...key, id }, () => [
    `${approve ? 'Approved' : reject ? 'Rejected' : 'Answered'} ${quoted(tool)}. The agent continues when your application runs this session next.`,
  ]);
};
