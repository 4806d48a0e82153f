/**
 * Runs in the browser and follows a live session. The pages can be read without it. `npm run studio-script` compiles it to the
 * text that the studio serves.
 */
import { ago, lasted } from '../operations/words.js';

const events = document.getElementById('events');
const source = events?.dataset['live'];

function show(state: 'on' | 'off', text: string): void {
  const status = document.getElementById('live');
  if (!status) return;
  status.hidden = false;
  status.dataset['state'] = state;
  if (status.textContent !== text) status.textContent = text;
}

/** Whether the newest event is seen. */
const isAtEnd = (list: HTMLElement) => list.getBoundingClientRect().bottom <= innerHeight + 120;

/** Shows the newest events, with what the page says below them. */
const toEnd = (list: HTMLElement) => (document.getElementById('waiting') ?? list).scrollIntoView({ block: 'end' });

/** Moves the answers of an event into the calls that they answer. */
function fold(item: Element): void {
  for (const answer of item.querySelectorAll<HTMLElement>('.answer[data-call]')) {
    const call = document.getElementById(answer.dataset['call'] ?? '');
    if (!call) continue;
    if (answer.dataset['closes'] === 'true') call.querySelector('.pending')?.remove();
    const mark = answer.querySelector('.mark');
    if (mark) call.querySelector('summary')?.append(mark);
    call.lastElementChild?.append(answer);
    // Nothing is left of an event that was only the answer.
    if (item.querySelector('.body')?.childElementCount === 0) item.classList.add('slim');
  }
}

async function refresh(): Promise<void> {
  const response = await fetch(location.href, { headers: { accept: 'text/html' } }).catch(() => undefined);
  if (!response?.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const id of ['state', 'facts', 'branches', 'waiting', 'now', 'busy']) {
    const [old, fresh] = [document.getElementById(id), page.getElementById(id)];
    // Replacing the part that has the focus would interrupt its reader.
    if (!old || !fresh || old.contains(document.activeElement)) continue;
    const [panel, freshPanel] = [old, fresh].map((each) => each.querySelector<HTMLDetailsElement>('.panel'));
    if (panel && freshPanel) freshPanel.open = panel.open;
    old.replaceWith(fresh);
  }
  // New times begin to count now: with the next tick, they would lag by up to a second.
  tick();
}

let refreshing: number | undefined;

/** Loads state and facts again, at most every two seconds, and when somebody looks. */
function refreshSoon(): void {
  if (document.visibilityState !== 'visible') {
    document.addEventListener('visibilitychange', refreshSoon, { once: true });
    return;
  }
  refreshing ??= setTimeout(() => {
    refreshing = undefined;
    void refresh();
  }, 2_000);
}

function add(list: HTMLElement, markup: string): void {
  const follows = isAtEnd(list);
  const holder = document.createElement('template');
  holder.innerHTML = markup;
  for (const item of [...holder.content.children]) {
    if (document.getElementById(item.id)) continue;
    item.classList.add('new');
    list.append(item);
    addCopyButtons(item);
    fold(item);
  }
  const none = list.nextElementSibling;
  if (none?.classList.contains('empty')) none.remove();
  // A document that keeps growing becomes slow; a link leads to what is removed here.
  while (list.children.length > Number(list.dataset['most'])) list.firstElementChild?.remove();
  if (follows) toEnd(list);
  refreshSoon();
}

/** Listens to a stream of the server. @param onMessage gets the data of each message. */
function listen({ dataset }: HTMLElement, onMessage: (data: string) => void): void {
  let cursor = dataset['cursor'] ?? '';
  const url = dataset['live'] ?? '';
  let stream: EventSource | undefined;
  let retry: number | undefined;
  let late: number | undefined;
  const connect = () => {
    clearTimeout(retry);
    const opened = new EventSource(`${url}${url.includes('?') ? '&' : '?'}cursor=${encodeURIComponent(cursor)}`);
    stream = opened;
    opened.onopen = () => {
      clearTimeout(late);
      late = undefined;
      show('on', 'Live');
    };
    opened.onerror = () => {
      // The browser reconnects by itself when the server ends the connection: report only a longer interruption.
      late ??= setTimeout(() => show('off', 'Connection lost. Trying again …'), 1_500);
      if (opened.readyState === EventSource.CLOSED) retry = setTimeout(connect, 3_000);
    };
    opened.addEventListener('reset', () => location.reload());
    opened.addEventListener('message', ({ data, lastEventId }: MessageEvent<string>) => {
      cursor = lastEventId;
      onMessage(data);
    });
  };
  connect();
  addEventListener('pagehide', () => stream?.close());
  addEventListener('pageshow', ({ persisted }) => {
    if (persisted) connect();
  });
}

const current = document.querySelector('.event.current');
if (current && location.hash === '') current.scrollIntoView({ block: 'center' });

if (events && source) {
  // Only a page that was just opened is scrolled to its newest events: after "Back" the browser restores the position.
  const [navigation] = performance.getEntriesByType('navigation');
  const isFresh = !(navigation instanceof PerformanceNavigationTiming) || navigation.type === 'navigate';
  if (isFresh && location.hash === '') {
    toEnd(events);
    // The newest answer, and why it was given, are seen whole.
    const why = [...document.querySelectorAll('.why[open]')].at(-1);
    why?.closest('.event')?.scrollIntoView({ block: 'nearest' });
    why?.scrollIntoView({ block: 'nearest' });
  }
  listen(events, (data) => add(events, String(JSON.parse(data))));
}

const now = document.getElementById('now');
if (now?.dataset['live']) listen(now, refreshSoon);

/** When the page was loaded or refreshed, by `performance.now`. */
let loaded = performance.now();

/** Loads the page again if it asks for that: the log has no entries of leases, and what is still counted comes later. */
async function refreshWhenDue(): Promise<void> {
  const seconds = Number(document.getElementById('now')?.dataset['refresh']);
  if (!seconds || document.visibilityState !== 'visible' || performance.now() - loaded < seconds * 1_000) return;
  loaded = Infinity;
  await refresh();
  loaded = performance.now();
}

/** When what continues began, by this page's clock: that of the server may differ. */
const began = new WeakMap<Element, number>();

/** What a time says that has passed, by the attribute that has it. */
const TEXTS = { lasted, ago };

function tick(): void {
  for (const [name, textOf] of Object.entries(TEXTS))
    for (const each of document.querySelectorAll<HTMLElement>(`[data-${name}]`)) {
      const begin = began.get(each) ?? performance.now() - Number(each.dataset[name]);
      began.set(each, begin);
      const text = textOf(performance.now() - begin);
      if (each.textContent !== text) each.textContent = text;
    }
}
setInterval(() => {
  tick();
  void refreshWhenDue();
}, 1_000);
tick();

/** Arrow keys go along the time line, which is one stop of the Tab key. */
const steps = [...document.querySelectorAll<HTMLAnchorElement>('.timeline li a')];
for (const [i, step] of steps.entries())
  step.addEventListener('keydown', ({ key }) => {
    const next = new Map([
      ['ArrowLeft', i - 1],
      ['ArrowRight', i + 1],
      ['Home', 0],
      ['End', steps.length - 1],
    ]).get(key);
    if (next !== undefined) steps[next]?.focus();
  });
const place = steps.find(({ tabIndex }) => tabIndex === 0);
const line = place?.closest('ol');
if (place && line) {
  const [at, all] = [place, line].map((each) => each.getBoundingClientRect().left);
  line.scrollLeft += (at ?? 0) - (all ?? 0) - line.clientWidth / 2;
}

/** A button that copies code. Browsers have no clipboard for pages that are neither encrypted nor on this machine. */
function addCopyButtons(to: ParentNode): void {
  if (!isSecureContext) return;
  for (const code of to.querySelectorAll('.code')) {
    const button = document.createElement('button');
    button.className = 'copy';
    button.textContent = 'Copy';
    button.addEventListener('click', () => {
      void navigator.clipboard
        .writeText(code.querySelector('code')?.textContent ?? '')
        .then(() => (button.textContent = 'Copied'));
    });
    code.append(button);
  }
}
addCopyButtons(document);

for (const image of document.querySelectorAll('figure img'))
  image.addEventListener('error', () => image.replaceWith(document.createTextNode('The image cannot be shown.')));
