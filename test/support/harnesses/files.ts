import { copyFile, mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Options } from '@mikro-orm/core';
import { databaseFolder, newName } from '../run.js';
import type { NewDatabase } from './database.js';

/** @param template the file to copy. Without it, the first connection creates the file. */
export async function createFile(driver: NonNullable<Options['driver']>, template?: string): Promise<NewDatabase> {
  // In its own folder, since WAL mode puts more files beside the database.
  const folder = path.join(databaseFolder(), newName());
  await mkdir(folder);
  const file = path.join(folder, 'test.db');
  if (template !== undefined) await copyFile(template, file);
  return {
    url: `sqlite:${file}`,
    options: { driver, dbName: file },
    drop: () => rm(folder, { recursive: true, force: true }),
  };
}
