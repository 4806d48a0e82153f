import { sessionKeyOf, type SessionKeyRow, bytesOf, numberOf, textOf } from '../database/sql/tables.js';
import { ofArtifact } from '../model/codec.js';
import { Undecodable, type StoredTexts } from '../model/stored-texts.js';
import { decode, isRecord } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import type { ArtifactInfo, NewVersion } from './artifact-content.js';

/** The stored key of an artifact: one of the user has no session id, and no `user:`. */
export interface ArtifactKey extends SessionKey {
  filename: string;
}

/** The row of an artifact's key. */
export interface ArtifactKeyRow extends SessionKeyRow {
  filename: string;
}

export const artifactKeyOf = (row: ArtifactKeyRow): ArtifactKey => ({
  ...sessionKeyOf(row),
  filename: textOf(row.filename),
});

/** One version of an artifact. */
export interface VersionKey extends ArtifactKey {
  version: number;
}

/** A version without its content. */
export interface StoredVersion {
  version: number;
  /** The metadata, or why it cannot be read. */
  info: ArtifactInfo | Damaged;
  /** In ms since 1970, by the database's clock. */
  createTime: number;
  /** The upload that has its parts. */
  upload?: number;
}

/** Why a version cannot be read. */
export class Damaged {
  constructor(readonly what: string) {}
}

export const CHANGED = new Damaged('a part of its content is missing, or was changed');

/** A version with its content, decoded. */
export interface Content {
  info: ArtifactInfo;
  parts: readonly Buffer[];
}

/** A version, encoded. */
export interface EncodedVersion {
  info: string;
  parts: readonly Uint8Array[];
  /** The upload that has the parts. */
  upload?: number | undefined;
  /** How many parts were written before. */
  written?: number | undefined;
}

/** The row of a version. */
export interface VersionRow {
  version: number;
  info: string;
  upload: number | null;
  create_time: number | string;
  /** The content, if it was selected. */
  data?: unknown;
}

/** @param isLenient whether to accept a text that lacks a required codec. */
export function storedVersion(
  texts: StoredTexts,
  key: ArtifactKey,
  row: VersionRow,
  { isLenient = false } = {},
): StoredVersion {
  const version = numberOf(row.version);
  const upload = row.upload === null ? undefined : numberOf(row.upload);
  const of = () => ofArtifact({ ...key, origin: '' }, version, 'info', upload);
  const text = textOf(row.info);
  const info = isLenient ? texts.decodeLeniently(text, of()) : texts.decode(text, of);
  return {
    ...{ version, info: infoOf(info), createTime: numberOf(row.create_time) },
    ...(upload !== undefined && { upload }),
  };
}

export function infoOf(text: string | Undecodable): ArtifactInfo | Damaged {
  if (text instanceof Undecodable) return new Damaged(`its metadata is ${text.encoding}`);
  const info = decode(text)?.value;
  return isRecord(info) && isRecord(info['artifact'])
    ? (info as unknown as ArtifactInfo)
    : new Damaged('its metadata cannot be read');
}

/** @returns the number in the rows of its parts. */
export const partsIn = ({ version, upload }: StoredVersion) => upload ?? version;

/**
 * @param isLenient whether to accept content that lacks a required codec, in order to encode it.
 * @param first the number of the first part that was read.
 */
export function decodedContent(
  texts: StoredTexts,
  key: ArtifactKey,
  version: StoredVersion,
  stored: readonly Buffer[],
  { isLenient = false, first = 0 } = {},
): Content | Damaged {
  const { info } = version;
  if (info instanceof Damaged) return info;
  const isFramed = info.content?.isEncoded ?? false;
  if (!isFramed && stored.length > 0 && texts.codec.required.length > 0 && !isLenient)
    return new Damaged(`its content is not encoded with ${texts.codec.required.join(', ')}`);
  const of = (part: number) => ofArtifact({ ...key, origin: '' }, partsIn(version), first + part);
  const parts = isFramed ? stored.map((each, part) => texts.decodeBytes(each, of(part), isLenient)) : stored;
  const undecodable = parts.find((each) => each instanceof Undecodable);
  if (undecodable) return new Damaged(`its content is ${undecodable.encoding}`);
  return { info, parts: parts.map((each) => bytesOf(each)) };
}

export const withEncoding = ({ info, parts }: Content, isEncoded: boolean): NewVersion => ({
  info: JSON.stringify({ ...info, ...(info.content && { content: { ...info.content, isEncoded } }) }),
  parts,
});

/** @param upload the upload that has the parts. */
export function encodedVersion(
  texts: StoredTexts,
  { version, ...key }: VersionKey,
  { info, parts }: NewVersion,
  upload?: number,
): EncodedVersion {
  const of = () => ofArtifact({ ...key, origin: '' }, version, 'info', upload);
  return { info: texts.encode(info, of), upload, parts: encodedParts(texts, key, upload ?? version, parts) };
}

/**
 * @param version the number in their rows, which may be an upload's.
 * @param first the number of the first part.
 */
export function encodedParts(
  texts: StoredTexts,
  key: ArtifactKey,
  version: number,
  parts: readonly Buffer[],
  first = 0,
): readonly Uint8Array[] {
  if (texts.codec.isNone) return parts;
  const known = { ...key, origin: '' };
  return parts.map((bytes, part) => texts.encodeBytes(bytes, ofArtifact(known, version, first + part)));
}
