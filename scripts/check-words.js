/**
 * Finds phrases that no native speaker writes and this project used to have, in prose, comments and strings. Also finds recent
 * commits whose subject is not `area: verb …` of at most 72 characters. `npm run lint` fails if there are any.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** Each phrase has the rule that it breaks. Blanks also match line breaks and the stars of comments. @type {readonly [pattern: string, rule: string][]} */
const PHRASES = [
  ["where it is(?: not|n’t|n't)", 'A condition begins with "if" or "when": where is a place.'],
  ['where (?:there is|there are|they are|this is|that is) (?:no|none|not)', 'A condition begins with "if" or "when".'],
  [
    '(?<=\\b(?:cursor|row|text|handle|name|one|dump|state|instrument)s?) of before',
    'Write "earlier", or "written before …".',
  ],
  ['so many at most', 'Write "at most n".'],
  [
    'so many (?:of them|milliseconds|ms|rows|sessions|events|entries|transactions|characters|days|operations)',
    'Write "n of them", and name n.',
  ],
  ['newest so many', 'Write "the newest n".'],
  ['another content', 'Write "other content".'],
  ['next to never', 'Write "hardly ever".'],
  ['stands? for', 'Write "means", or name the thing.'],
  ['tak(?:es?|en|ing) (?:\\w+ )?along', 'Write "include", "send with" or "write with".'],
  ['(?:is|are|be|gets?) told', 'Write "gets", "reports" or "learns".'],
  ['goes on', 'Write "continues".'],
  ['has to be waited for', 'Write "waits for".'],
  ['waits for nothing', 'Say what happens: "never waits".'],
  ['of which there (?:is|are)', 'Begin a sentence of its own.'],
  ['in the place of', 'Write "instead of".'],
  [
    '(?<!\\b[Tt]here )is no (?:null|failure|damage|conflict|room|entry|event|session|cursor|row|key|error)\\b',
    'Write "is not a …".',
  ],
  ['but for what', 'Write "except".'],
  ['no matter whose', 'Write "in any".'],
  ['made anew', 'Write "made again" or "rebuilt".'],
  ['(?:is|are|be|was|were) tried again', 'Write "retried".'],
  ['gone on with', 'Write "continued".'],
  ['takes? no other with (?:it|them)', 'Write "does not affect the others".'],
  ['option (?:that )?is not known', 'Write "if an option is unknown".'],
  ['(?:has )?a value that it cannot have', 'Write "its value is invalid".'],
  ['stays away after', 'Write "is still unavailable after".'],
  ['such as when', 'Write "for example if" or "for example when".'],
  ['as one (?:has|reads|sees|writes) (?:it|them)', 'Name the person, or write "literal".'],
  ['in silence', 'Write "silently".'],
  ['(?:writes?|makes?|written|loads?|created|filled) (?:it |them )?anew', 'Write "again", or a verb with re-.'],
  ['Of section [A-Z] what', 'Write "Tests of section …: what".'],
  ['in whose place', 'Write "that came instead of".'],
  [
    "(?:transaction|savepoint|call|function|value|parser) of the host's(?! (?:own|ORM|transaction|data|driver))",
    'Write "a host’s transaction".',
  ],
];

/** Text that others wrote, or that is generated from theirs. */
const LEFT_OUT =
  /^(test\/mikro-orm-7|docs\/benchmarks\/|scripts\/check-words\.js|package-lock|.*\.(json|svg|jpg|snap))/;

const files = execFileSync('git', ['ls-files', '*.md', '*.ts', '*.mts', '*.tsx', '*.js', '*.sh', '*.yml', '*.css'], {
  encoding: 'utf8',
})
  .trim()
  .split('\n')
  .filter((file) => !LEFT_OUT.test(file));

const rules = PHRASES.map(([phrase, rule]) => ({
  pattern: new RegExp(`\\b${phrase.replaceAll(' ', '\\s+(?:(?:\\*|//|#|>)\\s+)?')}\\b`, 'gi'),
  rule,
}));

const problems = files.flatMap((file) => {
  const text = readFileSync(file, 'utf8');
  return rules.flatMap(({ pattern, rule }) =>
    [...text.matchAll(pattern)].map(({ 0: found, index }) => {
      const line = text.slice(0, index).split('\n').length;
      return `${file}:${line}: "${found.replaceAll(/\s+(?:(?:\*|\/\/|#|>)\s+)?/g, ' ')}". ${rule}`;
    }),
  );
});

/** Enough commits to contain a pull request. */
const RECENT = 50;
const subjects = execFileSync('git', ['log', `-${RECENT}`, '--no-merges', '--format=%s'], { encoding: 'utf8' })
  .trim()
  .split('\n');
for (const subject of subjects) {
  if (subject.length > 72 || !/^[a-z\d ,-]+: \S/.test(subject)) {
    problems.push(`Commit "${subject}": write "area: verb in the imperative", at most 72 characters.`);
  }
}

for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exitCode = 1;
