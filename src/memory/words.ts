/** What the scripts have in common that put no blanks between words, or join particles to them. */
const IN_PAIRS =
  '\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}\\p{scx=Thai}\\p{scx=Lao}\\p{scx=Khmr}\\p{scx=Mymr}\\p{scx=Hang}';
const IS_IN_PAIRS = new RegExp(`[${IN_PAIRS}]`, 'u');
const PIECES = new RegExp(`[${IN_PAIRS}]+|[^${IN_PAIRS}]+`, 'gu');
const HAN = /\p{Script=Han}/u;
const RUNS = /[\p{L}\p{M}\p{N}]+/gu;
const MARKED = /([\p{Script=Latin}\p{Script=Greek}\p{Script=Arabic}\p{Script=Hebrew}])\p{M}+/gu;

const ASCII = /^[\0-\x7f]*$/;

/** Letters of which lower case has two forms, or upper case drops the difference. */
const FOLDED: Readonly<Record<string, string>> = { ß: 'ss', ς: 'σ', ı: 'i' };

/**
 * The words of a text, as they are compared: without case, without marks on letters of scripts that are also written without them.
 * Characters of scripts that have no blanks between words are taken in pairs, Han also one by one. No list of words or rules of a
 * language is needed, so a text in any mix of languages gives the same words on every machine.
 */
export function wordsOf(text: string): string[] {
  // The same, in less time.
  if (ASCII.test(text)) return text.toLowerCase().match(/[a-z0-9]+/g) ?? [];
  const words: string[] = [];
  for (const [run] of folded(text).matchAll(RUNS)) {
    if (!IS_IN_PAIRS.test(run)) words.push(run);
    else for (const [piece] of run.matchAll(PIECES)) addPiece(words, piece);
  }
  return words;
}

function folded(text: string): string {
  const bare = text.normalize('NFKC').toLowerCase().normalize('NFD').replace(MARKED, '$1').normalize('NFC');
  return bare.replace(/[ßςı]/g, (letter) => FOLDED[letter] ?? letter);
}

function addPiece(words: string[], piece: string): void {
  if (!IS_IN_PAIRS.test(piece)) {
    words.push(piece);
    return;
  }
  const characters = Array.from(piece);
  if (characters.length === 1) words.push(piece);
  for (const [i, character] of characters.entries()) {
    const next = characters[i + 1];
    if (next !== undefined) words.push(character + next);
    if (characters.length > 1 && HAN.test(character)) words.push(character);
  }
}

/** The first byte of a list, which no encoded one begins with; another one would be needed if `wordsOf` gave other words. */
const VERSION = 1;

/** Of each word a list has four bytes: 28 bits of its hash, and how often it occurs, 15 at most. */
const ENTRY = 4;
const MOST_OF_A_WORD = 15;
const MOST_WORDS = 2 ** 24 - 1;

/** FNV-1a. */
function hashOf(word: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < word.length; i++) hash = Math.imul(hash ^ word.charCodeAt(i), 0x01000193);
  return (hash ^ (hash >>> 15)) >>> 4;
}

/** @returns each word once, as lists have it, in their order. */
export const hashesOf = (words: readonly string[]): Uint32Array => Uint32Array.from(new Set(words.map(hashOf))).sort();

/** @returns the words with their counts, so that a text can be ranked without being read; first how many there are in all. */
export function wordList(words: readonly string[]): Buffer {
  const counts = new Map<number, number>();
  for (const word of words) {
    const hash = hashOf(word);
    counts.set(hash, Math.min((counts.get(hash) ?? 0) + 1, MOST_OF_A_WORD));
  }
  const entries = Uint32Array.from(counts, ([hash, count]) => hash * 16 + count).sort();
  const list = Buffer.allocUnsafe(ENTRY * (entries.length + 1));
  list.writeUInt32LE(Math.min(words.length, MOST_WORDS) * 256 + VERSION);
  for (const [i, entry] of entries.entries()) list.writeUInt32LE(entry, ENTRY * (i + 1));
  return list;
}

/** Whether bytes are a list that this version of the package has made; encoded ones are not. */
export const isWordList = (bytes: Uint8Array): boolean => bytes[0] === VERSION && bytes.length % ENTRY === 0;

/** How many words the text has in all. */
export const lengthOf = (list: Buffer): number => list.readUInt32LE() >>> 8;

/**
 * @param hashes what `hashesOf` gave.
 * @returns how often a list has each of them; undefined if it has none.
 */
export function countsIn(list: Buffer, hashes: Uint32Array): Uint8Array | undefined {
  let counts: Uint8Array | undefined;
  let i = 0;
  for (let at = ENTRY; at < list.length && i < hashes.length;) {
    const entry = list.readUInt32LE(at);
    const hash = hashes[i] ?? 0;
    if (entry >>> 4 >= hash) {
      if (entry >>> 4 === hash) (counts ??= new Uint8Array(hashes.length))[i] = entry & MOST_OF_A_WORD;
      i++;
    } else at += ENTRY;
  }
  return counts;
}
