import { Html, shown } from './html.js';

/** Renders a text in Markdown. */
export type Markdown = (text: string) => Html;

let loading: Promise<Markdown> | undefined;

/** Loads the renderer, which only pages of conversations need. */
export function markdown(): Promise<Markdown> {
  loading ??= load();
  return loading;
}

async function load(): Promise<Markdown> {
  const { default: MarkdownIt } = await import('markdown-it');
  // HTML is shown as text; a line break stays one.
  const markdown = new MarkdownIt({ html: false, breaks: true, linkify: true });
  // Only whole addresses: README.md would be one in Moldova.
  markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
  // The browser would load images from any site. They become links.
  markdown.disable('image');
  // Another scheme may run code, and an address without a scheme would lead to a page of the studio.
  markdown.validateLink = (url) => /^(https?|mailto):/i.test(url);
  const { rules } = markdown.renderer;
  rules['link_open'] = (tokens, i, options, _env, renderer) => {
    tokens[i]?.attrSet('rel', 'noopener noreferrer nofollow');
    tokens[i]?.attrSet('target', '_blank');
    return renderer.renderToken(tokens, i, options);
  };
  markdown.core.ruler.push('blocks', ({ tokens }) => {
    for (const [i, token] of tokens.entries()) {
      // A list in Arabic may follow a paragraph in English.
      if (/^(paragraph|bullet_list|ordered_list)_open$/.test(token.type)) token.attrSet('dir', 'auto');
      const [item, text] = [tokens[i - 2], token.children?.[0]];
      const [mark, checked = ''] = /^\[([ xX])\] /.exec(text?.content ?? '') ?? [];
      if (item?.type !== 'list_item_open' || text?.type !== 'text' || mark === undefined) continue;
      item.attrSet('class', 'task');
      text.content = `${checked === ' ' ? '☐' : '☑'} ${text.content.slice(mark.length)}`;
    }
  });
  // Headings of a message must not mix with those of the page.
  rules['heading_open'] = () => '<p class="caption">';
  rules['heading_close'] = () => '</p>\n';
  // Wide tables and code can be scrolled, also by keyboard.
  rules['table_open'] = () => '<div class="scrolled" tabindex="0"><table dir="auto">\n';
  rules['table_close'] = () => '</table></div>\n';
  // Without the alignment, which would be an inline style: the security headers forbid those.
  rules['th_open'] = () => '<th>';
  rules['td_open'] = () => '<td>';
  rules['fence'] = rules['code_block'] = (tokens, i) =>
    `<div class="code"><pre tabindex="0"><code>${markdown.utils.escapeHtml(tokens[i]?.content ?? '')}</code></pre></div>\n`;
  return (text) => new Html(`<div class="markdown" dir="auto">${shown(markdown.render(text))}</div>`);
}
