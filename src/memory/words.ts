/** Scripts without spaces between words, or with particles joined to them. */
const IN_PAIRS =
  '\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}\\p{scx=Thai}\\p{scx=Lao}\\p{scx=Khmr}\\p{scx=Mymr}\\p{scx=Hang}';

/** Stands between the parts of a word, as in Persian. Many leave it out, or write a space. */
const NON_JOINER = '\\u200c';

/** A word: a letter or a digit, with what follows it. A mark on a sign, as in `❤️` and `1️⃣`, is none. */
const WORD = '[\\p{L}\\p{N}][\\p{L}\\p{M}\\p{N}]*';
const makePatterns = () => ({
  isInPairs: new RegExp(`[${IN_PAIRS}]`, 'u'),
  pieces: new RegExp(`[${IN_PAIRS}]+|[^${IN_PAIRS}]+`, 'gu'),
  han: /\p{Script=Han}/u,
  words: new RegExp(WORD, 'gu'),
  joined: new RegExp(`${WORD}(?:[\\p{P}${NON_JOINER}]${WORD})*`, 'gu'),
  /** More marks on a letter than any script has. The last two become marks when a text is normalised. */
  tooMarked: /([\p{M}\uFF9E\uFF9F]{30})[\p{M}\uFF9E\uFF9F]+/gu,
  marked: /([\p{Script=Latin}\p{Script=Greek}\p{Script=Arabic}\p{Script=Hebrew}])\p{M}+/gu,
  unseen: new RegExp(`(?!${NON_JOINER})[\\p{Default_Ignorable_Code_Point}\\p{Me}]`, 'gu'),
});

type Patterns = ReturnType<typeof makePatterns>;
let made: Patterns | undefined;

/** Made for the first text that needs them: making them takes milliseconds, which loading the module should not. */
const patterns = (): Patterns => (made ??= makePatterns());

const ASCII = /^[\0-\x7f]*$/;
const ASCII_WORD = /[a-z0-9]+/g;
/** The signs are the punctuation in ASCII, as `\p{P}` has it. */
const ASCII_JOINED = /[a-z0-9]+(?:[!-#%-*,-/:;?@[-\]_{}][a-z0-9]+)*/g;

/**
 * Letters that are compared as others: `ß`, `ς` and `ı` have the same capitals as these; strokes, ligatures and the dots of `ё` are
 * often left out, and normalization does not remove them; U+0640 only lengthens an Arabic word; `ʼ` and `ʻ` are apostrophes.
 */
const FOLDED: Readonly<Record<string, string>> = {
  ...{ ß: 'ss', ς: 'σ', ı: 'i', ł: 'l', ø: 'o', đ: 'd', æ: 'ae', œ: 'oe', ё: 'е', '\u0640': '', ʼ: '', ʻ: '' },
};

/**
 * The words of a text, normalised for comparison: without case, without characters that nobody sees, and without marks in scripts that
 * are also written without them. Words that a punctuation character joins, such as `Wi-Fi` and `AB-1234`, are also one word. In scripts
 * without spaces, each pair of characters is a word, and in Han each character, too. It needs no dictionary and no rules of a language,
 * so a text in any mix of languages gives the same words on every machine.
 */
export function wordsOf(text: string): string[] {
  const found: string[] = [];
  // The same result, but faster.
  if (ASCII.test(text)) {
    for (const [joined] of text.toLowerCase().matchAll(ASCII_JOINED)) addJoined(found, joined, ASCII_WORD);
    return found;
  }
  const { joined, words, isInPairs, pieces } = patterns();
  for (const [run] of folded(text).matchAll(joined))
    if (!isInPairs.test(run)) addJoined(found, run, words);
    else for (const [word] of run.matchAll(words)) for (const [piece] of word.matchAll(pieces)) addPiece(found, piece);
  return found;
}

/** Adds words, and the word that they are together, unless it has the stem of the first: `what's` would count as `what` twice. */
function addJoined(found: string[], joined: string, word: RegExp): void {
  const parts = joined.match(word) ?? [];
  for (const part of parts) found.push(part);
  const [first = ''] = parts;
  if (parts.length === 1) return;
  const whole = parts.join('');
  if (first.length < STEM || !hashed(whole).hasStem) found.push(whole);
}

function folded(text: string): string {
  const { tooMarked, marked, unseen } = patterns();
  // Normalization sorts the marks of a letter, in quadratic time: 100,000 of them stopped the process for 8 s. Of more than 30, the
  // others are left out, as in the stream-safe text format (UAX 15).
  const streamSafe = text.replace(unseen, '').replace(tooMarked, '$1').normalize('NFKC');
  const bare = streamSafe.toLowerCase().normalize('NFD').replace(marked, '$1').normalize('NFC');
  // The last four bits in the code of an Arabic or Persian digit are its value.
  return bare.replace(/[ßςıłøđæœёʼʻ\u0640٠-٩۰-۹]/g, (letter) => FOLDED[letter] ?? String(letter.charCodeAt(0) & 0xf));
}

function addPiece(words: string[], piece: string): void {
  const { isInPairs, han } = patterns();
  if (!isInPairs.test(piece)) {
    words.push(piece);
    return;
  }
  const characters = Array.from(piece);
  if (characters.length === 1) words.push(piece);
  for (const [i, character] of characters.entries()) {
    const next = characters[i + 1];
    if (next !== undefined) words.push(character + next);
    if (characters.length > 1 && han.test(character)) words.push(character);
  }
}

/** The first byte of a list. No encoded list begins with it. It must change if lists get other words or hashes. */
const VERSION = 3;

/** A word takes four bytes in a list: 28 bits of its hash, and its count, at most 15. */
const ENTRY = 4;
const MOST_OF_A_WORD = 15;
const MOST_WORDS = 2 ** 24 - 1;

/**
 * The stem of a word in any language is guessed: the first four letters, if it has so many. `npm run bench -- memory` compares this
 * with other guesses.
 */
const STEM = 4;

/** How many bits of a hash come from the rest of the word. The stem comes first, so in order of hashes its words are neighbours. */
const REST_BITS = 8;
const REST = 2 ** REST_BITS - 1;

const [ZERO, NINE] = [0x30, 0x39];

/** FNV-1a. */
const FNV = { offset: 0x811c9dc5, prime: 0x01000193 };
const mixed = (hash: number) => (hash ^ (hash >>> 15)) >>> 0;

interface HashedWord {
  hash: number;
  hasStem: boolean;
}

function hashed(word: string): HashedWord {
  let hash = FNV.offset;
  let stem = 0;
  let hasStem = word.length >= STEM;
  for (let i = 0; i < word.length; i++) {
    const code = word.charCodeAt(i);
    if (code >= ZERO && code <= NINE) hasStem = false;
    hash = Math.imul(hash ^ code, FNV.prime);
    if (i === STEM - 1) stem = hash;
  }
  const bits = mixed(hash) >>> 4;
  return { hash: hasStem ? ((mixed(stem) >>> 4) & ~REST) | (bits & REST) : bits, hasStem };
}

/** The words of a question, for which lists are searched. */
export interface SearchQuestion {
  /** Each word once, in the order of lists. */
  words: readonly HashedWord[];
  /** The list of the question itself. */
  list: Buffer;
}

/**
 * How many words of a question count. `PRELOAD_MEMORY` asks with the user's whole message: comparing a pasted page of 10,000 words with
 * 5,000 memories took the process 20 s.
 */
const MOST_ASKED = 128;

/** The longest text with words, in characters: of a question, and of an event that is remembered. */
export const LONGEST_TEXT = 100_000;

/** @param text its words count, or those at the beginning and the end of a long one. */
export function questionOf(text: string): SearchQuestion {
  const half = LONGEST_TEXT / 2;
  const words = wordsOf(text.length > LONGEST_TEXT ? `${text.slice(0, half)} ${text.slice(-half)}` : text);
  const each = [...new Map(words.map((word) => [hashed(word).hash, hashed(word)])).values()];
  // Keeps the beginning and the end: the question stands before or after a pasted text.
  if (each.length > MOST_ASKED) each.splice(MOST_ASKED / 2, each.length - MOST_ASKED);
  return { words: each.sort((a, b) => a.hash - b.hash), list: wordList(words) };
}

/** @returns the number of all words, then each word with its count, so that a text can be ranked without reading it. */
export function wordList(words: readonly string[]): Buffer {
  const counts = new Map<number, number>();
  for (const word of words) {
    const { hash } = hashed(word);
    counts.set(hash, Math.min((counts.get(hash) ?? 0) + 1, MOST_OF_A_WORD));
  }
  const entries = Uint32Array.from(counts, ([hash, count]) => hash * 16 + count).sort();
  const list = Buffer.allocUnsafe(ENTRY * (entries.length + 1));
  list.writeUInt32LE(Math.min(words.length, MOST_WORDS) * 256 + VERSION);
  for (const [i, entry] of entries.entries()) list.writeUInt32LE(entry, ENTRY * (i + 1));
  return list;
}

/** Whether bytes are a list of this version of the package, not encoded. A memory has at least one word. */
export const isWordList = (bytes: Uint8Array): boolean =>
  bytes[0] === VERSION && bytes.length > ENTRY && bytes.length % ENTRY === 0;

/** @returns the number of all words in the text. */
export const lengthOf = (list: Buffer): number => entryAt(list, 0) >>> 8;

/**
 * Counts each word of a question in a list, and then the words with the same stem, including the word itself.
 *
 * @param counts gets the counts. It must contain zeros from `place` on. The count of a stem is at most 255.
 * @returns false if the list has none of the words.
 */
export function countWords(
  list: Buffer,
  { words }: Pick<SearchQuestion, 'words'>,
  counts: Uint8Array,
  place: number,
): boolean {
  let hasOne = false;
  let at = ENTRY;
  for (let i = 0; i < words.length; i++) {
    const { hash = 0, hasStem } = words[i] ?? {};
    const first = hasStem ? hash & ~REST : hash;
    const last = hasStem ? hash | REST : hash;
    while (at < list.length && entryAt(list, at) >>> 4 < first) at += ENTRY;
    for (let next = at; next < list.length; next += ENTRY) {
      const entry = entryAt(list, next);
      const found = entry >>> 4;
      if (found > last) break;
      hasOne = true;
      const count = entry & MOST_OF_A_WORD;
      if (found === hash) counts[place + i] = count;
      const stem = place + words.length + i;
      counts[stem] = Math.min((counts[stem] ?? 0) + count, 255);
    }
  }
  return hasOne;
}

/** Like `readUInt32LE`, but several times as fast. */
const entryAt = (list: Buffer, at: number): number =>
  ((list[at] ?? 0) | ((list[at + 1] ?? 0) << 8) | ((list[at + 2] ?? 0) << 16) | ((list[at + 3] ?? 0) << 24)) >>> 0;
