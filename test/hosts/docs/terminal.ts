const LINE = 20;
const CHARACTER = 8.4;

/** A picture of a terminal, for light and dark. @param lines those that begin with `$ ` are typed. */
export function drawTerminal(title: string, lines: readonly string[]): string {
  const width = Math.ceil(Math.max(...lines.map((line) => line.length)) * CHARACTER) + 40;
  const height = lines.length * LINE + 56;
  const texts = lines.map(
    (line, i) =>
      `<text x="20" y="${52 + i * LINE}" xml:space="preserve"${line.startsWith('$ ') ? ' class="typed"' : ''}>${escaped(line)}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">
<title>${escaped(title)}</title>
<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328 }
.typed { font-weight: 600; fill: #0550ae }
rect { fill: #f6f8fa; stroke: #d1d9e0 }
circle { fill: #c8d1da }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .typed { fill: #79c0ff } rect { fill: #161b22; stroke: #3d444d } circle { fill: #3d444d }
}
</style>
<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>
<circle cx="22" cy="18" r="5"/><circle cx="40" cy="18" r="5"/><circle cx="58" cy="18" r="5"/>
${texts.join('\n')}
</svg>
`;
}

const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
