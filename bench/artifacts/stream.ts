/** Saves and reads one artifact as a stream, in its own process, so that its memory holds nothing else of a run. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { MikroOrmArtifactService } from '../../src/index.js';
import type { TestDatabase } from '../../test/support/servers.js';
import { connect } from '../connect.js';

const CHUNK_BYTES = 65_536;

const SAMPLE_MS = 10;

/** One direction, from the first byte to the last. */
interface Streamed {
  ms: number;
  /** How much the process grew at most, in MB of resident memory. */
  grownMb: number;
}

export interface StreamResult {
  save: Streamed;
  read: Streamed;
}

/** Streams this many bytes in and out, in a process of its own. */
export async function streamed({ name, url }: TestDatabase, bytes: number): Promise<StreamResult> {
  const child = fork(fileURLToPath(import.meta.url), ['stream', name, url, String(bytes)]);
  const failed = once(child, 'exit').then(() => {
    throw new Error('The process that streams has failed.');
  });
  const [result] = (await Promise.race([once(child, 'message'), failed])) as [StreamResult];
  return result;
}

async function* chunks(bytes: number): AsyncGenerator<Uint8Array> {
  for (let given = 0; given < bytes; given += CHUNK_BYTES)
    yield Buffer.alloc(Math.min(CHUNK_BYTES, bytes - given), given / CHUNK_BYTES);
}

async function gauged(work: () => Promise<void>): Promise<Streamed> {
  const { rss: before } = process.memoryUsage();
  let most = before;
  const sample = () => (most = Math.max(most, process.memoryUsage.rss()));
  const timer = setInterval(sample, SAMPLE_MS);
  const begin = performance.now();
  await work();
  const ms = performance.now() - begin;
  clearInterval(timer);
  sample();
  return { ms, grownMb: (most - before) / 1e6 };
}

async function stream(name: string, url: string, bytes: number): Promise<void> {
  const orm = await connect(name, url);
  const artifacts = new MikroOrmArtifactService(orm.em, { maxBytes: bytes });
  const file = { appName: 'bench', userId: 'ada', sessionId: 's', filename: 'video' };
  const save = (size: number) =>
    artifacts.saveArtifactStream({ ...file, mimeType: 'video/mp4', content: chunks(size) });
  const read = async () => {
    let count = 0;
    for await (const part of (await artifacts.openArtifact(file))!.bytes()) count += part.length;
    return count;
  };
  // Loads what a process takes only once: code, a connection, the buffers of one transaction.
  await save(4_000_000);
  await read();
  const result: StreamResult = {
    save: await gauged(async () => {
      await save(bytes);
    }),
    read: await gauged(async () => {
      if ((await read()) !== bytes) throw new Error('The stream came back in another length.');
    }),
  };
  process.send?.(result);
  await orm.close();
  process.disconnect?.();
}

const [role, name = '', url = '', bytes = ''] = process.argv.slice(2);
if (role === 'stream') await stream(name, url, Number(bytes));
