/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import type { Message, MessageToolCall } from 'adk-mikro-orm';
import type { Said } from './agent.js';
import type { ChatPart } from './chat.js';

// The page in the browser. It imports only types.

const STYLE = `
:root { color-scheme: light dark; }
.chat { display: flex; flex-direction: column; height: 100dvh; max-width: 46rem; margin: 0 auto; font: 1rem/1.5 system-ui, sans-serif; }
.chat ol { flex: 1; overflow-y: auto; overflow-anchor: none; margin: 0; padding: 1rem; list-style: none; }
.chat li { width: fit-content; max-width: 85%; margin: 0 0 .75rem; padding: .5rem .85rem; border-radius: 1rem; background: light-dark(#eef0f3, #2a2f37); overflow-wrap: anywhere; white-space: pre-wrap; }
.chat li.user { margin-left: auto; background: #1a56c4; color: #fff; }
.chat li.top { padding: 0; background: none; min-height: 1px; max-width: none; }
.chat .error { border: 1px solid; border-radius: 1rem; background: light-dark(#fdecea, #41201d); color: light-dark(#8c1d18, #ffb9b1); }
.chat code { display: block; font-size: .85rem; }
.chat p { margin: 0 1rem .75rem; padding: .25rem .85rem; }
.chat p:empty { display: none; }
.chat form { display: flex; gap: .5rem; padding: .75rem 1rem; border-top: 1px solid light-dark(#d5d9e0, #454b55); }
.chat input { flex: 1; min-width: 0; padding: .6rem .85rem; font: inherit; border: 1px solid #6b7280; border-radius: .6rem; }
.chat button { margin: .15rem .25rem .15rem 0; padding: .6rem 1rem; font: inherit; border: 0; border-radius: .6rem; background: #1a56c4; color: #fff; }
.chat button:disabled { background: light-dark(#5d6675, #565d69); }
`;

const CONFIRMATION = 'adk_request_confirmation';

/** A call with its response, which may be from another part of the conversation. */
interface Shown extends MessageToolCall {
  element: HTMLElement;
  /** Those of a question. */
  buttons: HTMLButtonElement[];
}

/** @returns the call that a question of ADK is about. */
const askedAbout = ({ name, args }: MessageToolCall) =>
  name === CONFIRMATION ? (args['originalFunctionCall'] as { id: string; name: string; args: object }) : undefined;

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
  const status = Object.assign(made('p'), { role: 'status' });
  const input = Object.assign(made('input'), { required: true, autocomplete: 'off', ariaLabel: 'Your message' });
  const button = made('button', 'Send');
  const form = made('form');
  form.append(input, button);
  root.className = 'chat';
  root.replaceChildren(style, list, status, form);

  let first = 1;
  let last = 0;
  let calls: Shown[] = [];
  let events: EventSource | undefined;
  /** A message that was sent, until the conversation has it. */
  let sent: string | undefined;
  let runs = 0;

  const read = async (query: string): Promise<ChatPart> => {
    const response = await fetch(`${url}/part?${query}`, { signal });
    if (!response.ok) throw new Error(`${response.status}`);
    return (await response.json()) as ChatPart;
  };

  function describe(call: Shown): string {
    const { id, name, args, response, isFailed } = call;
    const asked = askedAbout(call);
    if (asked)
      return `${asked.name}(${JSON.stringify(asked.args)})? ${response ? (response['confirmed'] ? 'Approved.' : 'Rejected.') : ''}`;
    // Until the user has answered, ADK keeps an error as the response.
    const isAsked = calls.some((each) => !each.response && askedAbout(each)?.id === id);
    return `${name}(${JSON.stringify(args)}) ${response && !isAsked ? `${isFailed ? '✗' : '→'} ${JSON.stringify(response)}` : '…'}`;
  }

  function elementOf({ id, role, text, toolCalls, error }: Message): HTMLElement {
    const item = Object.assign(made('li', text), { className: error ? 'error' : role });
    item.dataset['id'] = id;
    if (error) item.append(made('strong', 'The model failed: '), error);
    for (const call of toolCalls) {
      const buttons =
        call.name !== CONFIRMATION || call.response ? [] : [made('button', 'Approve'), made('button', 'Reject')];
      const shown = { ...call, element: made('code'), buttons };
      buttons.forEach((each, i) => each.addEventListener('click', () => void answer(shown, i === 0)));
      item.append(shown.element, ...buttons);
      calls.push(shown);
    }
    if (role === 'user' && text === sent) input.value = sent = '';
    return item;
  }

  /** Adds responses to their calls, which may be in an older part, and shows how the calls are now. */
  function showCalls(): void {
    for (const orphan of calls.filter((call) => call.isCallMissing)) {
      const call = calls.find(({ id, isCallMissing }) => id !== undefined && id === orphan.id && !isCallMissing);
      if (!call) continue;
      Object.assign(call, { response: orphan.response, isFailed: orphan.isFailed });
      const item = orphan.element.parentElement;
      orphan.element.remove();
      if (item?.childNodes.length === 0) item.remove();
      calls = calls.filter((each) => each !== orphan);
    }
    for (const call of calls) {
      call.element.textContent = describe(call);
      if (call.response) for (const each of call.buttons.splice(0)) each.remove();
    }
  }

  // One after the other, since both change the same numbers.
  let turn = Promise.resolve();
  const inTurn = (work: () => Promise<void>) =>
    (turn = turn.then(work).catch((error: unknown) => {
      if (!signal.aborted) console.error(error);
    }));

  const readNewer = () =>
    inTurn(async () => {
      const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
      for (let part = await read(`after=${last}`); part.last > last; part = await read(`after=${last}`)) {
        list.append(...part.messages.map(elementOf));
        last = part.last;
      }
      showCalls();
      if (isAtEnd) list.scrollTop = list.scrollHeight;
    });

  const onScreen = new IntersectionObserver(
    (entries) => {
      if (!entries.at(-1)?.isIntersecting) return;
      void inTurn(async () => {
        if (!top.isConnected) return;
        const part = await read(`before=${first}`);
        const below = list.scrollHeight - list.scrollTop;
        top.after(...part.messages.map(elementOf));
        first = part.first;
        showCalls();
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
      showCalls();
      ({ first, last } = part);
      list.scrollTop = list.scrollHeight;
      if (part.hasOlder) onScreen.observe(top);
      events = new EventSource(`${url}/events?lastEventId=${last}`);
      for (const type of ['message', 'damaged']) events.addEventListener(type, readNewer);
      // The session was rewound, or deleted and created again.
      events.addEventListener('reset', begin);
    });

  /** Runs the agent; the stream brings what it says. @returns whether it ran. */
  async function run(said: Said): Promise<boolean> {
    runs++;
    Object.assign(status, { className: '', textContent: 'The agent is working …' });
    const headers = { 'content-type': 'application/json' };
    const failure = await fetch(`${url}/messages`, {
      method: 'POST',
      headers,
      body: JSON.stringify(said),
      signal,
    }).then(
      ({ ok, status: code }) => (ok ? '' : `The server answered with ${code}.`),
      () => 'The server cannot be reached.',
    );
    await readNewer();
    runs--;
    if (failure) Object.assign(status, { className: 'error', textContent: failure });
    else if (runs === 0) status.textContent = '';
    return failure === '';
  }

  async function answer({ id = '', buttons }: Shown, confirmed: boolean): Promise<void> {
    for (const each of buttons) each.disabled = true;
    await run({ call: id, confirmed });
    // Those that are left: the answer was not stored.
    for (const each of buttons) each.disabled = false;
  }

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    sent = input.value;
    // The field keeps the message until the conversation has it, so that no failure loses it.
    input.readOnly = button.disabled = true;
    if (!(await run({ text: sent })) && sent) status.append(' Your message was not stored: send it again.');
    sent = undefined;
    input.readOnly = button.disabled = false;
  });
  void begin();
  return () => {
    ended.abort();
    events?.close();
    onScreen.disconnect();
  };
}
