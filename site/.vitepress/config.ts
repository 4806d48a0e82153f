import { readFileSync } from 'node:fs';
import { slug } from 'github-slugger';
import { defineConfig } from 'vitepress';

const sidebar = JSON.parse(readFileSync(new URL('../pages/sidebar.json', import.meta.url), 'utf8'));

export default defineConfig({
  title: 'adk-mikro-orm',
  description: "Durable sessions for Google's Agent Development Kit in TypeScript, on your own MikroORM",
  lang: 'en',
  srcDir: 'pages',
  // The path below which GitHub Pages serves the site.
  base: process.env.SITE_BASE || '/',
  // check-links.ts follows all other links, including their anchors.
  ignoreDeadLinks: 'localhostLinks',
  markdown: {
    // Makes links to headings the same as on GitHub.
    anchor: { slugify: slug },
    toc: { slugify: slug },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config(markdown) {
      // Lets the keyboard reach a table that scrolls.
      markdown.renderer.rules.table_open = () => '<table tabindex="0">\n';
    },
  },
  themeConfig: {
    nav: [
      { text: 'Recipes', link: '/recipes' },
      { text: 'Memory', link: '/memory' },
      { text: 'Operations', link: '/operations' },
      { text: 'Studio', link: '/studio' },
      { text: 'Contract', link: '/contract' },
      { text: 'Reference', link: '/reference/' },
      { text: 'Changes', link: '/CHANGELOG' },
    ],
    sidebar: [
      ...sidebar,
      {
        text: 'Look up',
        items: [
          { text: 'Reference', link: '/reference/' },
          { text: 'README', link: '/README' },
          { text: 'Changes', link: '/CHANGELOG' },
          { text: 'Contributing', link: '/CONTRIBUTING' },
          { text: 'Security', link: '/SECURITY' },
        ],
      },
    ],
    outline: [2, 3],
    search: {
      provider: 'local',
      options: {
        miniSearch: {
          searchOptions: {
            // Guides come first. Pages about the package itself, the reference and the sources contain each word more often.
            // VitePress sends the text of this function to the browser, so it can use no variable from outside.
            boostDocument: (page: string) =>
              /\/(reference|source)\//.test(page)
                ? 0.1
                : /\/(architecture|contract|session-contract|adk-services|growth|benchmarks|CHANGELOG|CONTRIBUTING)\b/.test(
                      page,
                    )
                  ? 0.4
                  : 1,
          },
        },
      },
    },
  },
});
