/**
 * What the pages do beyond showing what is stored; all of it can be read without. As text: a function of the sources is
 * changed by whatever compiles them, and would look for its helpers in the browser.
 */
export const SCRIPT_TEXT = `'use strict';
const events = document.getElementById('events');
const status = document.getElementById('live');
const source = events && events.dataset.live;

const show = (state, text) => {
  status.hidden = false;
  status.dataset.state = state;
  if (status.textContent !== text) status.textContent = text;
};

const isAtEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 120;

/** Puts the answer of a call that is shown into it: of the same branch, or of any if one of the two has none. */
const fold = (item) => {
  for (const answer of item.querySelectorAll('[data-answer]')) {
    const id = answer.dataset.answer;
    const calls = [...events.querySelectorAll('[data-call]')].filter((each) => each.dataset.call === id && !item.contains(each));
    const branchOf = (each) => each.closest('.event').dataset.branch;
    const branch = branchOf(answer);
    const call = id && (calls.findLast((each) => branchOf(each) === branch) ?? calls.findLast((each) => !branch || !branchOf(each)));
    if (!call) continue;
    const pending = call.querySelector('.pending');
    if (pending && (!pending.classList.contains('warn') || item.classList.contains('user'))) pending.remove();
    call.lastElementChild.append(answer);
  }
};

/** Brings state and facts of the page up to date, at most every two seconds. */
let refreshing;
const refresh = () => {
  refreshing ??= setTimeout(async () => {
    refreshing = undefined;
    const response = await fetch(location.href, { headers: { accept: 'text/html' } }).catch(() => undefined);
    if (!response || !response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), 'text/html');
    for (const id of ['state', 'facts', 'waiting']) {
      const [old, fresh] = [document.getElementById(id), page.getElementById(id)];
      // What one reads or has folded stays.
      if (old && fresh && !old.contains(document.activeElement)) {
        const panel = fresh.querySelector('.panel');
        if (panel) panel.open = old.querySelector('.panel').open;
        old.replaceWith(fresh);
      }
    }
  }, 2000);
};

if (source) {
  // A page that is opened shows what is new; one that is come back to stays where it was.
  const [navigation] = performance.getEntriesByType('navigation');
  if (!location.hash && (!navigation || navigation.type === 'navigate'))
    (document.getElementById('waiting') ?? events).scrollIntoView({ block: 'nearest' });
  let cursor = events.dataset.cursor;
  let stream;
  let retry;
  let late;
  const connect = () => {
    clearTimeout(retry);
    stream = new EventSource(source + '&cursor=' + encodeURIComponent(cursor));
    stream.onopen = () => {
      clearTimeout(late);
      late = undefined;
      show('on', 'Live');
    };
    stream.onerror = () => {
      // A connection that the server ends comes back by itself; one that stays away is told of.
      late ??= setTimeout(() => show('off', 'Connection lost. Trying again …'), 1500);
      if (stream.readyState === EventSource.CLOSED) retry = setTimeout(connect, 3000);
    };
    stream.addEventListener('reset', () => location.reload());
    stream.addEventListener('message', ({ data, lastEventId }) => {
      cursor = lastEventId;
      const follows = isAtEnd();
      const holder = document.createElement('template');
      holder.innerHTML = JSON.parse(data);
      for (const item of [...holder.content.children]) {
        if (document.getElementById(item.id)) continue;
        item.classList.add('new');
        events.append(item);
        fold(item);
      }
      const none = events.nextElementSibling;
      if (none && none.classList.contains('empty')) none.remove();
      // Only what is seen stays in the document; the others are a page away.
      while (events.children.length > Number(events.dataset.most)) events.firstElementChild.remove();
      if (follows) events.lastElementChild.scrollIntoView({ block: 'end' });
      refresh();
    });
  };
  connect();
  addEventListener('pagehide', () => stream.close());
  addEventListener('pageshow', ({ persisted }) => persisted && connect());
}

for (const image of document.querySelectorAll('figure img'))
  image.addEventListener('error', () => image.replaceWith(document.createTextNode('The image cannot be shown.')));
`;
