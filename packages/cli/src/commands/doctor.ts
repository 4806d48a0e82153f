import { examine, type Finding } from '../../../studio/src/internal.js';
import { printable, printableLines } from '../../../studio/src/operations/words.js';
import { Unfinished } from '../errors.js';
import type { Context } from '../run.js';
import { inWordsOf } from '../words.js';

export async function doctor(context: Pick<Context, 'em' | 'terminal' | 'url' | 'codec'>): Promise<void> {
  const findings: Finding[] = [];
  for await (const { advice, ...finding } of examine(context.em, context.codec))
    findings.push({ ...finding, ...(advice !== undefined && { advice: inWordsOf(context, advice) }) });
  await context.terminal.result(findings, () => findings.flatMap((finding) => lines(context.terminal, finding)));
  if (findings.some(({ state }) => state === 'wrong')) throw new Unfinished();
}

function lines(terminal: Context['terminal'], { check, state, found, advice }: Finding): string[] {
  const mark = { ok: terminal.green('✓'), advice: terminal.yellow('!'), wrong: terminal.red('✗') }[state];
  const todo = (advice === undefined ? [] : printableLines(advice)).map((line) => `    ${line}`);
  return [`${mark} ${check}: ${printable(found)}`, ...todo];
}
