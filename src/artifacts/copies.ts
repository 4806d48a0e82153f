import { afterPrefix } from '../database/sql/keyset.js';
import type { Event } from '@google/adk';
import type { Sql } from '../database/dialects/dialect.js';
import {
  ARTIFACT_COLUMNS,
  ARTIFACT_NAMES,
  IN_ARTIFACT,
  SESSION_WHERE,
  insertIntoArtifacts,
} from '../database/sql/columns.js';
import { named, perTables, sessionValues, textOf, withList } from '../database/sql/values.js';
import { isRecord } from '../model/json.js';
import { isKey, type SessionKey } from '../model/keys.js';
import { chunksOf } from '../model/pages.js';
import { isOfUser } from '../model/artifact-name.js';
import { artifactValues, insertVersion, isVersion, readContent } from './artifact-store.js';
import { encodedVersion, undamaged, withEncoding, type ArtifactKey } from './stored-version.js';

/** Versions by the names of their artifacts. */
type NamedVersions = ReadonlyMap<string, ReadonlySet<number>>;

/**
 * Finds the versions of a session's own artifacts that belong to its events: those that `artifactDelta` names, and those that ADK's
 * Runner has saved from what the user sent. Of these an event has at most the name, in its text: they have the version after the last
 * one that was named.
 */
export async function versionsOf(sql: Sql, session: SessionKey, events: readonly Event[]): Promise<NamedVersions> {
  const named = new Map<string, Set<number>>();
  const newest = new Map<string, number>();
  const add = (filename: string, version = (newest.get(filename) ?? -1) + 1) => {
    if (isOfUser(filename) || !isKey('filename', filename) || !isVersion(version)) return;
    named.set(filename, (named.get(filename) ?? new Set()).add(version));
    newest.set(filename, Math.max(version, newest.get(filename) ?? -1));
  };
  const invocations = new Set<string>();
  for (const { actions, author, invocationId, content } of events) {
    if (author === 'user') {
      if (invocationId) invocations.add(invocationId);
      for (const name of uploadedIn(content?.parts)) add(name);
    }
    for (const [filename, version] of Object.entries(actions?.artifactDelta ?? {})) add(filename, version);
  }
  // The host may show the upload otherwise. Then the name still has the invocation.
  const saved = invocations.size === 0 ? [] : await sql.all(statements(sql).saved, sessionValues(session));
  for (const row of saved) {
    const filename = textOf(row['filename']);
    const invocation = /^artifact_(.+)_\d+$/s.exec(filename)?.[1];
    if (invocation !== undefined && invocations.has(invocation) && !named.has(filename)) add(filename);
  }
  return named;
}

/** @param parts whatever the event has there. @returns the names that ADK's Runner has written in place of what the user sent. */
const uploadedIn = (parts: unknown): string[] =>
  (Array.isArray(parts) ? parts : []).flatMap((part: unknown) => {
    const text = isRecord(part) ? part['text'] : undefined;
    return (typeof text === 'string' && /^\[Uploaded Artifact: "(.+)"\]$/s.exec(text)?.[1]) || [];
  });

/**
 * Copies versions of a session's artifacts into a new session of the same user, where they keep their numbers.
 *
 * @param named the versions of each artifact; missing ones are left out.
 * @throws DamagedArtifactError if one cannot be decoded, to be encoded for the new session.
 */
export async function copyVersions(sql: Sql, from: SessionKey, to: SessionKey, named: NamedVersions): Promise<void> {
  const text = statements(sql);
  // Somebody may have saved artifacts under this id before the session existed.
  sql.later(text.deleteOfSession, sessionValues(to));
  for (const [filename, versions] of named) {
    if (!sql.texts.codec.isNone) {
      await recodeVersions(sql, { ...from, filename }, { ...to, filename }, [...versions]);
      continue;
    }
    const source = { ...artifactValues({ ...from, filename }), to: to.sessionId };
    // Nobody may delete it between the statements.
    await sql.run(...text.lockArtifact(source));
    const ordered = [...versions].sort((one, other) => one - other);
    for (const some of chunksOf(ordered, MOST_VERSIONS)) {
      const run = ({ copy, end }: (typeof text)['copyArtifact']) => sql.run(...withList(copy(source), some, end));
      const { affectedRows } = await run(text.copyArtifact);
      if (affectedRows === 0) continue;
      for (const copy of text.copyVersions) await run(copy);
    }
  }
}

/** How many versions one statement names. */
const MOST_VERSIONS = 500;

/** Copies versions of one artifact, encoded for the new session, to which a codec binds them. One is in memory at a time. */
async function recodeVersions(
  sql: Sql,
  from: ArtifactKey,
  to: ArtifactKey,
  versions: readonly number[],
): Promise<void> {
  let isNew = true;
  for (const version of versions.toSorted((a, b) => b - a)) {
    const found = await readContent(sql, from, version);
    if (!found) continue;
    const content = undamaged(from.filename, version, found.content);
    const { createTime } = found;
    // The first one is the newest.
    if (isNew) await sql.run(...statements(sql).insert({ ...artifactValues(to), version, createTime }));
    isNew = false;
    const key = { ...to, version };
    await insertVersion(sql, key, encodedVersion(sql.texts, key, withEncoding(content, true)), createTime);
  }
}

const statements = perTables(({ dialect, tables: { artifacts, artifactVersions, artifactParts } }: Sql) => {
  // The list of versions comes before the end.
  const copy = (into: string, selected: string, from: string, columns = selected, end = '') => ({
    copy: named(`insert into ${into} (${ARTIFACT_COLUMNS}, ${columns})
      select app_name, user_id, :to, filename, ${selected} from ${from} where ${IN_ARTIFACT} and version in`),
    end,
  });
  return {
    insert: named(`${insertIntoArtifacts(artifacts)} values (${ARTIFACT_NAMES}, :version, :createTime)`),
    lockArtifact: named(`update ${artifacts} set update_time = update_time where ${IN_ARTIFACT}`),
    deleteOfSession: `delete from ${artifacts} where ${SESSION_WHERE}`,
    saved: `select filename from ${artifacts} where ${SESSION_WHERE}
      and filename >= 'artifact_' and filename < '${afterPrefix('artifact_')}'${dialect.sql.underLock}`,
    // Of several lists in order the last one counts.
    copyArtifact: copy(
      artifacts,
      'max(version), max(create_time)',
      artifactVersions,
      'last_version, update_time',
      ` group by app_name, user_id, filename ${dialect.sql.onSameKey(ARTIFACT_COLUMNS, ['last_version', 'update_time'])}`,
    ),
    copyVersions: [
      copy(artifactVersions, 'version, info, data, create_time', artifactVersions),
      copy(artifactParts, 'version, part, data', artifactParts),
    ],
  };
});
