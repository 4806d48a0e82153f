import { Html, shown } from './html.js';

/** Makes markup of a text in Markdown. */
export type Markdown = (text: string) => Html;

let loading: Promise<Markdown> | undefined;

/** Loads what pages of conversations need, and no other. */
export function markdown(): Promise<Markdown> {
  loading ??= load();
  return loading;
}

async function load(): Promise<Markdown> {
  const { default: MarkdownIt } = await import('markdown-it');
  // HTML in the text is text, and a line of it begins a line.
  const markdown = new MarkdownIt({ html: false, breaks: true });
  // The browser would load it from anywhere. What is left of it is a link.
  markdown.disable('image');
  // Any other scheme may run something, and an address without one is none of the text's: it would be a page of the studio.
  markdown.validateLink = (url) => /^(https?|mailto):/i.test(url);
  const { rules } = markdown.renderer;
  rules['link_open'] = (tokens, i, options, _env, renderer) => {
    tokens[i]?.attrSet('rel', 'noopener noreferrer nofollow');
    tokens[i]?.attrSet('target', '_blank');
    return renderer.renderToken(tokens, i, options);
  };
  // The page has its own headings.
  rules['heading_open'] = () => '<p class="caption">';
  rules['heading_close'] = () => '</p>\n';
  // Both can be scrolled, also by keyboard.
  rules['table_open'] = () => '<div class="scrolled" tabindex="0"><table>\n';
  rules['table_close'] = () => '</table></div>\n';
  // An alignment would be a style, which the pages allow none.
  rules['th_open'] = () => '<th>';
  rules['td_open'] = () => '<td>';
  rules['fence'] = rules['code_block'] = (tokens, i) =>
    `<pre tabindex="0"><code>${markdown.utils.escapeHtml(tokens[i]?.content ?? '')}</code></pre>\n`;
  return (text) => new Html(`<div class="markdown" dir="auto">${shown(markdown.render(text))}</div>`);
}
