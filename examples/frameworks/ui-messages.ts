import type { UIMessage } from 'ai';
import type { Message, MessageToolCall } from 'adk-mikro-orm';

type Part = UIMessage['parts'][number];

/** The messages of `toMessages` for `useChat` of the Vercel AI SDK: as its `messages`, or from the route of its history. */
export function toUIMessages(messages: readonly Message[]): UIMessage[] {
  return messages.map(({ id, role, author, timestamp, text, thoughts, toolCalls, attachments, error }) => ({
    id,
    role: role === 'user' ? 'user' : 'assistant',
    metadata: { author, timestamp },
    parts: [
      ...(thoughts ? [{ type: 'reasoning', text: thoughts } as const] : []),
      ...(text ? [{ type: 'text', text } as const] : []),
      ...attachments.map(attachmentPart),
      ...toolCalls.map((call, i) => toolPart(call, call.id ?? `${id}-${i}`)),
      ...(error ? [{ type: 'data-error', data: error } as const] : []),
    ],
  }));
}

function attachmentPart(part: Message['attachments'][number]): Part {
  const { inlineData, fileData } = part;
  const mediaType = inlineData?.mimeType ?? fileData?.mimeType ?? 'application/octet-stream';
  if (inlineData?.data) return { type: 'file', mediaType, url: `data:${mediaType};base64,${inlineData.data}` };
  if (fileData?.fileUri) return { type: 'file', mediaType, url: fileData.fileUri };
  return { type: 'data-code', data: part }; // code that the model ran, and its result
}

function toolPart({ name, args, response }: MessageToolCall, toolCallId: string): Part {
  const call = { type: 'dynamic-tool', toolName: name, toolCallId, input: args } as const;
  if (!response) return { ...call, state: 'input-available' };
  const { error } = response;
  if (error === undefined) return { ...call, state: 'output-available', output: response };
  return { ...call, state: 'output-error', errorText: typeof error === 'string' ? error : JSON.stringify(error) };
}
