import type { SaveArtifactRequest } from '@google/adk';
import { constants } from 'node:buffer';
import { createHash } from 'node:crypto';
import { types } from 'node:util';
import { ArtifactTooLargeError, InvalidArgumentError } from '../model/errors.js';
import { encode } from '../model/json.js';

/** The content of an artifact: a text, bytes, or a reference. */
type Part = SaveArtifactRequest['artifact'];

/** How many bytes a row has at most: less than the smallest packet limit of a server, and a multiple of three for base64. */
export const PART_BYTES = 491_520;

/** The metadata of a version. */
export interface ArtifactInfo {
  /** The Part, with an empty text instead of its content. */
  artifact: Part;
  customMetadata?: Record<string, unknown>;
  mimeType?: string;
  /** Absent if the artifact is a reference and has no content. */
  content?: {
    of: 'text' | 'inlineData';
    /** Of the file, in bytes. */
    size: number;
    sha256: string;
    /** If JSON of the text is stored instead, because UTF-8 or base64 would not give back the same text: that of the JSON. */
    json?: { size: number; sha256: string };
    /** Whether the codecs have encoded each part. */
    isEncoded: boolean;
  };
}

/** A version to save. */
export interface NewVersion {
  /** JSON of `ArtifactInfo`. */
  info: string;
  parts: readonly Buffer[];
}

/**
 * @throws InvalidArgumentError if the Part has no content.
 * @throws UnserializableValueError if JSON cannot represent a value of it, or of the metadata.
 * @throws ArtifactTooLargeError if the content has more than `maxBytes`.
 */
export function newVersion(
  given: Pick<SaveArtifactRequest, 'artifact' | 'customMetadata'>,
  { maxBytes, isEncoded }: { maxBytes: number; isEncoded: boolean },
): NewVersion {
  const { artifact, mimeType, text, of } = withoutContent(given.artifact);
  const content = of && contentOf(of, text, maxBytes);
  const { customMetadata } = given;
  const info: ArtifactInfo = {
    artifact,
    ...(customMetadata && { customMetadata }),
    ...(mimeType !== undefined && { mimeType }),
    ...(content && { content: { ...content.about, isEncoded } }),
  };
  return { info: encode(info, '').json, parts: content ? partsOf(content.bytes) : [] };
}

/**
 * Reads a stream to its end.
 *
 * @throws UnserializableValueError if JSON cannot represent the metadata.
 * @throws InvalidArgumentError if it gives something else than bytes.
 * @throws ArtifactTooLargeError as soon as it has given more than `maxBytes`.
 */
export async function versionOfStream(
  content: AsyncIterable<unknown>,
  { mimeType, customMetadata }: { mimeType: string; customMetadata?: Record<string, unknown> | undefined },
  { maxBytes, isEncoded }: { maxBytes: number; isEncoded: boolean },
): Promise<NewVersion> {
  const artifact = { inlineData: { mimeType, data: '' } };
  // Before the first await: later changes by the caller must not reach the database.
  const { json } = encode({ artifact, ...(customMetadata && { customMetadata }), mimeType }, '');
  const hash = createHash('sha256');
  const parts: Buffer[] = [];
  let size = 0;
  for await (const chunk of content) {
    // Not `instanceof`, which is false for bytes of another realm, as in jest with jsdom.
    if (!types.isUint8Array(chunk))
      throw new InvalidArgumentError(
        'content must yield bytes (Uint8Array). A Readable with an encoding yields strings. Nothing was written.',
      );
    if (size + chunk.length > maxBytes) throw tooLarge(`at least ${size + chunk.length}`, maxBytes);
    hash.update(chunk);
    // Copied at once: a stream may give the same buffer again, with other bytes.
    for (let start = 0; start < chunk.length;) {
      const at = size % PART_BYTES;
      if (at === 0) parts.push(Buffer.allocUnsafe(PART_BYTES));
      const some = chunk.subarray(start, start + PART_BYTES - at);
      parts.at(-1)?.set(some, at);
      start += some.length;
      size += some.length;
    }
  }
  const last = parts.pop()?.subarray(0, size - parts.length * PART_BYTES) ?? Buffer.alloc(0);
  const about: ArtifactInfo['content'] = { of: 'inlineData', size, sha256: hash.digest('hex'), isEncoded };
  return { info: `${json.slice(0, -1)},"content":${JSON.stringify(about)}}`, parts: [...parts, last] };
}

/** A Part without its content. */
interface PartWithoutContent {
  artifact: Part;
  mimeType: string | undefined;
  of?: 'text' | 'inlineData';
  text: string;
}

function withoutContent(part: Part): PartWithoutContent {
  const { inlineData, fileData, text } = part;
  if (inlineData) {
    const data = textOf(inlineData.data, 'artifact.inlineData.data');
    const artifact = { ...part, inlineData: { ...inlineData, data: '' } };
    return { artifact, mimeType: inlineData.mimeType, of: 'inlineData', text: data };
  }
  if (text !== undefined && text !== null)
    return {
      artifact: { ...part, text: '' },
      mimeType: 'text/plain',
      of: 'text',
      text: textOf(text, 'artifact.text'),
    };
  if (!fileData)
    throw new InvalidArgumentError('artifact must have inlineData, text or fileData. Nothing was written.');
  textOf(fileData.fileUri, 'artifact.fileData.fileUri');
  return { artifact: part, mimeType: fileData.mimeType, text: '' };
}

function textOf(value: unknown, name: string): string {
  if (typeof value !== 'string') throw new InvalidArgumentError(`${name} must be a string. Nothing was written.`);
  return value;
}

/** @throws ArtifactTooLargeError. */
function contentOf(of: 'text' | 'inlineData', text: string, maxBytes: number) {
  const file = fileOf({ of, text });
  if (file.length > maxBytes) throw tooLarge(file.length, maxBytes);
  const about = { of, size: file.length, sha256: sha256(file) };
  if (isTextOf(file, of, text)) return { bytes: file, about };
  const bytes = Buffer.from(JSON.stringify(text));
  // Base64 with line ends is half as long again as its file, but what Node.js skips in it may be of any length.
  const most = of === 'text' ? maxBytes : 2 * maxBytes + 100;
  if (bytes.length > most) throw tooLarge(bytes.length, maxBytes);
  return { bytes, about: { ...about, json: { size: bytes.length, sha256: sha256(bytes) } } };
}

/** @returns the file that a text or base64, in any of its forms, represents. */
export const fileOf = ({ of, text }: { of: 'text' | 'inlineData'; text: string }): Buffer =>
  Buffer.from(text, of === 'text' ? 'utf8' : 'base64');

/** Whether bytes give back the text that they were decoded from: base64 has several forms, and UTF-8 no half surrogate pairs. */
function isTextOf(bytes: Buffer, of: 'text' | 'inlineData', text: string): boolean {
  return of === 'text' ? !/\p{Surrogate}/u.test(text) : isCanonical(text, bytes);
}

/**
 * Whether encoding would give back the base64 text that the bytes were decoded from, without encoding all of them. Node.js skips
 * characters that are not base64, so that the length or the end would differ, and reads `-` and `_` as `+` and `/`.
 */
export function isCanonical(base64: string, bytes: Buffer): boolean {
  if (base64.length !== 4 * Math.ceil(bytes.length / 3) || base64.includes('-') || base64.includes('_')) return false;
  return base64.endsWith(bytes.toString('base64', bytes.length - (bytes.length % 3 || Math.min(3, bytes.length))));
}

function partsOf(bytes: Buffer): Buffer[] {
  const parts: Buffer[] = [];
  for (let start = 0; start === 0 || start < bytes.length; start += PART_BYTES)
    parts.push(bytes.subarray(start, start + PART_BYTES));
  return parts;
}

/** Whether the parts have the size and the hash that were saved. */
export function isWhole({ info: { content }, parts }: { info: ArtifactInfo; parts: readonly Buffer[] }): boolean {
  if (!content) return parts.length === 0;
  const stored = content.json ?? content;
  const size = parts.reduce((sum, { length }) => sum + length, 0);
  return size === stored.size && sha256(...parts) === stored.sha256;
}

/** Base64 has four characters for three bytes. */
const MOST_IN_PART = Math.floor(constants.MAX_STRING_LENGTH / 4) * 3;

/** @throws ArtifactTooLargeError if the base64 text would be longer than JavaScript allows: it was saved from a stream. */
export function refuseLong({ content }: ArtifactInfo): void {
  if (content?.of === 'inlineData' && content.size > MOST_IN_PART)
    throw new ArtifactTooLargeError(content.size, `the ${MOST_IN_PART} that a Part can have. Use openArtifact`);
}

const tooLarge = (bytes: number | string, maxBytes: number): ArtifactTooLargeError =>
  new ArtifactTooLargeError(bytes, `the ${maxBytes} of maxBytes; nothing was written`);

export function partOf({ info: { artifact, content }, parts }: { info: ArtifactInfo; parts: readonly Buffer[] }): Part {
  if (!content) return artifact;
  const [first] = parts;
  const bytes = parts.length === 1 && first ? first : Buffer.concat(parts);
  const text = content.json
    ? (JSON.parse(bytes.toString()) as string)
    : bytes.toString(content.of === 'text' ? 'utf8' : 'base64');
  return content.of === 'text'
    ? { ...artifact, text }
    : { ...artifact, inlineData: { ...artifact.inlineData, data: text } };
}

function sha256(...parts: readonly Buffer[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
}
