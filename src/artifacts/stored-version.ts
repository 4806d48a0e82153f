import { bytesOf, numberOf, textOf } from '../database/sql/values.js';
import { ofArtifact } from '../model/codec.js';
import { DamagedArtifactError } from '../model/errors.js';
import { Undecodable, type StoredTexts } from '../model/stored-texts.js';
import { decode, isRecord } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import type { ArtifactInfo, NewVersion } from './artifact-content.js';

/** The stored key of an artifact: one of the user has no session id, and no `user:`. */
export interface ArtifactKey extends SessionKey {
  filename: string;
}

/** One version of an artifact. */
export interface VersionKey extends ArtifactKey {
  version: number;
}

/** A version without its content. */
export interface StoredVersion {
  version: number;
  /** The metadata, or why it cannot be read. */
  info: ArtifactInfo | DamagedVersion;
  /** In ms since 1970, by the database's clock. */
  createTime: number;
}

/** Why a version cannot be read. */
export class DamagedVersion {
  constructor(readonly what: string) {}
}

export const CHANGED = new DamagedVersion('a part of its content is missing, or was changed');

/** @param filename ADK's name of the artifact. @throws DamagedArtifactError if it could not be read. */
export function undamaged<T>(filename: string, version: number, found: T | DamagedVersion): T {
  if (found instanceof DamagedVersion) throw new DamagedArtifactError(filename, version, found.what);
  return found;
}

/** A version with its content, decoded. */
export interface VersionContent {
  info: ArtifactInfo;
  parts: readonly Buffer[];
}

/** A version, encoded. */
export interface EncodedVersion {
  info: string;
  parts: readonly Uint8Array[];
}

/** The row of a version. */
export interface VersionRow {
  version: number;
  info: string;
  create_time: number | string;
  /** The content, if it was selected. */
  data?: unknown;
}

export function storedVersion(texts: StoredTexts, key: ArtifactKey, row: VersionRow): StoredVersion {
  const version = numberOf(row.version);
  const of = () => ofArtifact({ ...key, origin: '' }, version, 'info');
  const text = textOf(row.info);
  const info = texts.decode(text, of);
  return { version, info: infoOf(info), createTime: numberOf(row.create_time) };
}

export function infoOf(text: string | Undecodable): ArtifactInfo | DamagedVersion {
  if (text instanceof Undecodable) return new DamagedVersion(`its metadata is ${text.encoding}`);
  const info = decode(text)?.value;
  return isRecord(info) && isRecord(info['artifact'])
    ? (info as unknown as ArtifactInfo)
    : new DamagedVersion('its metadata cannot be read');
}

/** @param first the number of the first part that was read. */
export function decodedContent(
  texts: StoredTexts,
  key: ArtifactKey,
  version: StoredVersion,
  stored: readonly Buffer[],
  first = 0,
): VersionContent | DamagedVersion {
  const { info } = version;
  if (info instanceof DamagedVersion) return info;
  const isFramed = info.content?.isEncoded ?? false;
  if (!isFramed && stored.length > 0 && texts.codec.required.length > 0)
    return new DamagedVersion(`its content is not encoded with ${texts.codec.required.join(', ')}`);
  const of = (part: number) => ofArtifact({ ...key, origin: '' }, version.version, first + part);
  const parts = isFramed ? stored.map((each, part) => texts.decodeBytes(each, of(part))) : stored;
  const undecodable = parts.find((each) => each instanceof Undecodable);
  if (undecodable) return new DamagedVersion(`its content is ${undecodable.encoding}`);
  return { info, parts: parts.map((each) => bytesOf(each)) };
}

export const withEncoding = ({ info, parts }: VersionContent, isEncoded: boolean): NewVersion => ({
  info: JSON.stringify({ ...info, ...(info.content && { content: { ...info.content, isEncoded } }) }),
  parts,
});

export function encodedVersion(
  texts: StoredTexts,
  { version, ...key }: VersionKey,
  { info, parts }: NewVersion,
): EncodedVersion {
  const of = (what: number | 'info') => ofArtifact({ ...key, origin: '' }, version, what);
  return {
    info: texts.encode(info, () => of('info')),
    parts: texts.codec.isNone ? parts : parts.map((bytes, part) => texts.encodeBytes(bytes, of(part))),
  };
}
