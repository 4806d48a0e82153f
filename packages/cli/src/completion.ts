import type { Command } from 'commander';

/** What can follow a command on a command line. */
interface Level {
  /** The names of the command and of those above it; empty for the program. */
  path: string;
  words: { word: string; about: string }[];
  /** The values of options: undefined if any value may follow. */
  values: { option: string; choices: readonly string[] | undefined }[];
}

function levelsOf(command: Command, path: readonly string[] = []): Level[] {
  const help = command.createHelp();
  help.showGlobalOptions = true;
  const commands = help.visibleCommands(command);
  const options = [...help.visibleOptions(command), ...help.visibleGlobalOptions(command)];
  const level: Level = {
    path: path.join(' '),
    words: [
      ...commands.map((each) => ({ word: each.name(), about: each.description() })),
      ...options.map(({ long, description }) => ({ word: long ?? '', about: description })),
    ],
    values: options
      .filter(({ required }) => required)
      .map(({ long, argChoices }) => ({ option: long ?? '', choices: argChoices })),
  };
  // Help on a command needs no words of its own.
  const named = commands.filter((each) => each.name() !== 'help');
  return [level, ...named.flatMap((each) => levelsOf(each, [...path, each.name()]))];
}

const SCRIPTS: Readonly<Record<string, (levels: readonly Level[]) => string>> = { bash, zsh, fish };

/** @returns a script for a shell that completes the commands and options of a program. */
export const completionOf = (program: Command, shell: string): string => SCRIPTS[shell]?.(levelsOf(program)) ?? '';

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

/** The cases of a shell's `case` for the values of options, and for what else can follow. */
const cases = (levels: readonly Level[], valuesOf: (words: readonly string[]) => string): string =>
  [
    ...levels.flatMap(({ path, values }) =>
      values.map(({ option, choices = [] }) => `    ${quoted(`${path} ${option}`)}) ${valuesOf(choices)} ;;`),
    ),
    // A command within a command comes before that.
    ...levels
      .toReversed()
      .map(({ path, words }) => `    ${quoted(path)}\\ *) ${valuesOf(words.map(({ word }) => word))} ;;`),
  ].join('\n');

const paths = (levels: readonly Level[], separator: string): string =>
  levels
    .filter(({ path }) => path !== '')
    .map(({ path }) => quoted(path))
    .join(separator);

function bash(levels: readonly Level[]): string {
  return `_adk_mikro_orm() {
  local path='' next words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    next="\${path:+$path }\${COMP_WORDS[i]}"
    case "$next" in
    ${paths(levels, ' | ')}) path=$next ;;
    esac
  done
  case "$path \${COMP_WORDS[COMP_CWORD - 1]}" in
${cases(levels, (words) => `words=${quoted(words.join(' '))}`)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _adk_mikro_orm adk-mikro-orm
`;
}

function zsh(levels: readonly Level[]): string {
  return `#compdef adk-mikro-orm
_adk_mikro_orm() {
  local word_path='' next i
  local -a found
  for ((i = 2; i < CURRENT; i++)); do
    next="\${word_path:+$word_path }\${words[i]}"
    case "$next" in
    ${paths(levels, ' | ')}) word_path=$next ;;
    esac
  done
  case "$word_path \${words[CURRENT - 1]}" in
${cases(levels, (words) => `found=(${words.join(' ')})`)}
  esac
  if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _adk_mikro_orm adk-mikro-orm
`;
}

/** Fish has another way to quote. */
const inFish = (text: string) => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;

function fish(levels: readonly Level[]): string {
  const lines = levels.flatMap(({ path, words, values }) =>
    words.map(({ word, about }) => {
      const value = values.find(({ option }) => option === word);
      const what = word.startsWith('--') ? `-l ${word.slice(2)}` : `-f -a ${word}`;
      const choices = value && (value.choices ? ` -x -a ${inFish(value.choices.join(' '))}` : ' -r');
      return `complete -c adk-mikro-orm -n ${inFish(`__adk_mikro_orm_at ${inFish(path)}`)} ${what}${choices ?? ''} -d ${inFish(about)}`;
    }),
  );
  return `function __adk_mikro_orm_at
    set -l path
    for word in (commandline -opc)[2..-1]
        switch (string trim "$path $word")
            case ${paths(levels, ' ')}
                set path (string trim "$path $word")
        end
    end
    test "$path" = "$argv[1]"
end
${lines.join('\n')}
`;
}
