import { EventType, type AGUIEvent } from '@ag-ui/core';
import type { Message } from 'adk-mikro-orm';

/**
 * The messages of `toMessages` as the events of one AG-UI run.
 *
 * @param run `threadId` is the id of the session, `runId` that of the invocation.
 */
export function* toAGUIEvents(
  run: { threadId: string; runId: string },
  messages: readonly Message[],
): Generator<AGUIEvent> {
  yield { type: EventType.RUN_STARTED, ...run };
  for (const message of messages) yield* messageEvents(message);
  const error = messages.at(-1)?.error;
  if (error) yield { type: EventType.RUN_ERROR, message: error };
  else yield { type: EventType.RUN_FINISHED, ...run };
}

function* messageEvents({
  id,
  role,
  timestamp,
  text,
  thoughts,
  toolCalls,
  attachments,
}: Message): Generator<AGUIEvent> {
  if (thoughts) {
    const messageId = `${id}-thoughts`;
    yield { type: EventType.REASONING_START, messageId, timestamp };
    yield { type: EventType.REASONING_MESSAGE_START, messageId, role: 'reasoning' };
    yield { type: EventType.REASONING_MESSAGE_CONTENT, messageId, delta: thoughts };
    yield { type: EventType.REASONING_MESSAGE_END, messageId };
    yield { type: EventType.REASONING_END, messageId };
  }
  if (text) {
    yield {
      type: EventType.TEXT_MESSAGE_START,
      messageId: id,
      role: role === 'user' ? 'user' : 'assistant',
      timestamp,
    };
    yield { type: EventType.TEXT_MESSAGE_CONTENT, messageId: id, delta: text };
    yield { type: EventType.TEXT_MESSAGE_END, messageId: id };
  }
  for (const [i, { id: callId, name, args, response }] of toolCalls.entries()) {
    const toolCallId = callId ?? `${id}-${i}`;
    yield { type: EventType.TOOL_CALL_START, toolCallId, toolCallName: name, parentMessageId: id, timestamp };
    yield { type: EventType.TOOL_CALL_ARGS, toolCallId, delta: JSON.stringify(args) };
    yield { type: EventType.TOOL_CALL_END, toolCallId };
    if (!response) continue;
    const content = JSON.stringify(response);
    yield { type: EventType.TOOL_CALL_RESULT, messageId: `${toolCallId}-result`, toolCallId, content, role: 'tool' };
  }
  for (const part of attachments) yield { type: EventType.CUSTOM, name: 'attachment', value: { messageId: id, part } };
}
