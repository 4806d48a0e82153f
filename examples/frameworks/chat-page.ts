/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import type { Message, MessageToolCall } from 'adk-mikro-orm';
import type { ChatPart } from './chat.js';

// The page in the browser. It imports only types.

const STYLE = `
.chat { display: flex; flex-direction: column; height: 100dvh; max-width: 46rem; margin: 0 auto; font: 1rem/1.5 system-ui, sans-serif; }
.chat ol { flex: 1; overflow-y: auto; overflow-anchor: none; margin: 0; padding: 1rem; list-style: none; }
.chat li { width: fit-content; max-width: 85%; margin: 0 0 .75rem; padding: .5rem .85rem; border-radius: 1rem; background: #eef0f3; color: #16181d; overflow-wrap: anywhere; white-space: pre-wrap; }
.chat li.user { margin-left: auto; background: #1a56c4; color: #fff; }
.chat li.top { padding: 0; background: none; min-height: 1px; max-width: none; }
.chat code { display: block; font-size: .85rem; }
.chat form { display: flex; gap: .5rem; padding: .75rem 1rem; border-top: 1px solid #d5d9e0; }
.chat input { flex: 1; min-width: 0; padding: .6rem .85rem; font: inherit; border: 1px solid #6b7280; border-radius: .6rem; }
.chat button { padding: .6rem 1rem; font: inherit; border: 0; border-radius: .6rem; background: #1a56c4; color: #fff; }
`;

/** A call from one part of the conversation with its response from another. */
type Shown = MessageToolCall & { element: HTMLElement };

/**
 * Shows an endless conversation: new messages arrive by themselves, older ones are loaded when the reader scrolls up.
 *
 * @param url of the session; its `part`, `events` and `messages` are below it.
 * @returns a function that stops it.
 */
export function showChat(root: HTMLElement, url: string): () => void {
  const ended = new AbortController();
  const { signal } = ended;
  const made = <Name extends keyof HTMLElementTagNameMap>(name: Name, text = '') =>
    Object.assign(document.createElement(name), { textContent: text });
  const style = made('style', STYLE);
  const list = Object.assign(made('ol'), { tabIndex: 0, ariaLabel: 'Conversation' });
  const top = Object.assign(made('li'), { className: 'top', ariaHidden: 'true' });
  const input = Object.assign(made('input'), { required: true, autocomplete: 'off', ariaLabel: 'Your message' });
  const form = made('form');
  form.append(input, made('button', 'Send'));
  root.className = 'chat';
  root.replaceChildren(style, list, form);

  let first = 1;
  let last = 0;
  let calls: Shown[] = [];
  let events: EventSource | undefined;

  const read = async (query: string): Promise<ChatPart> => {
    const response = await fetch(`${url}/part?${query}`, { signal });
    if (!response.ok) throw new Error(`${response.status}`);
    return (await response.json()) as ChatPart;
  };

  const describe = ({ name, args, response }: MessageToolCall) =>
    `${name}(${JSON.stringify(args)})${response ? ` → ${JSON.stringify(response)}` : ' …'}`;

  function elementOf({ id, role, text, toolCalls, error }: Message): HTMLElement {
    const item = Object.assign(made('li', text || (error ?? '')), { className: role });
    item.dataset['id'] = id;
    for (const call of toolCalls) {
      const element = made('code', describe(call));
      item.append(element);
      calls.push({ ...call, element });
    }
    return item;
  }

  /** Adds a response to its call, which is in an older part. */
  function pairAcrossParts(): void {
    for (const orphan of calls.filter((call) => call.isCallMissing)) {
      const call = calls.find(({ id, isCallMissing }) => id !== undefined && id === orphan.id && !isCallMissing);
      if (!call || !orphan.response) continue;
      call.response = orphan.response;
      call.element.textContent = describe(call);
      const item = orphan.element.parentElement;
      orphan.element.remove();
      if (item?.childNodes.length === 0) item.remove();
      calls = calls.filter((each) => each !== orphan);
    }
  }

  // One after the other, since both change the same numbers.
  let turn = Promise.resolve();
  const inTurn = (work: () => Promise<void>) => {
    turn = turn.then(work).catch((error: unknown) => {
      if (!signal.aborted) console.error(error);
    });
  };

  const readNewer = () =>
    inTurn(async () => {
      const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
      for (let part = await read(`after=${last}`); part.last > last; part = await read(`after=${last}`)) {
        list.append(...part.messages.map(elementOf));
        last = part.last;
      }
      pairAcrossParts();
      if (isAtEnd) list.scrollTop = list.scrollHeight;
    });

  const onScreen = new IntersectionObserver(
    (entries) => {
      if (!entries.at(-1)?.isIntersecting) return;
      inTurn(async () => {
        if (!top.isConnected) return;
        const part = await read(`before=${first}`);
        const below = list.scrollHeight - list.scrollTop;
        top.after(...part.messages.map(elementOf));
        first = part.first;
        pairAcrossParts();
        // Keeps the messages in view that the reader was looking at.
        list.scrollTop = list.scrollHeight - below;
        onScreen.unobserve(top);
        if (part.hasOlder) onScreen.observe(top);
        else top.remove();
      });
    },
    { root: list, rootMargin: '400px 0px 0px' },
  );

  const begin = () =>
    inTurn(async () => {
      events?.close();
      onScreen.disconnect();
      calls = [];
      const part = await read('');
      list.replaceChildren(...(part.hasOlder ? [top] : []), ...part.messages.map(elementOf));
      ({ first, last } = part);
      list.scrollTop = list.scrollHeight;
      if (part.hasOlder) onScreen.observe(top);
      events = new EventSource(`${url}/events?after=${last}`);
      for (const type of ['message', 'damaged']) events.addEventListener(type, readNewer);
      // The session was rewound, or deleted and created again.
      events.addEventListener('reset', begin);
    });

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const text = input.value;
    input.value = '';
    const headers = { 'content-type': 'application/json' };
    fetch(`${url}/messages`, { method: 'POST', headers, body: JSON.stringify({ text }) }).catch(() => {
      input.value = text;
    });
  });
  begin();
  return () => {
    ended.abort();
    events?.close();
    onScreen.disconnect();
  };
}
