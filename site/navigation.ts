/** The pages of docs/ in the order of the site. A page that is not listed fails `npm run site` and test/hosts/docs. */
export const NAVIGATION: readonly { title: string; pages: readonly string[] }[] = [
  { title: 'Begin', pages: ['README.md', 'when-not.md', 'coming-from.md', 'dev-ui.md', 'frameworks.md', 'testing.md'] },
  {
    title: 'Questions',
    pages: [
      'guides/after-a-crash.md',
      'guides/several-workers.md',
      'guides/delete-a-person.md',
      'guides/which-database.md',
      'guides/upgrade.md',
    ],
  },
  {
    title: 'Use it',
    pages: [
      'recipes.md',
      'options.md',
      'errors.md',
      'artifacts.md',
      'leases.md',
      'event-log.md',
      'projections.md',
      'tables.md',
      'migrations.md',
    ],
  },
  {
    title: 'Run it',
    pages: [
      'production.md',
      'operations.md',
      'telemetry.md',
      'maintenance.md',
      'codecs.md',
      'studio.md',
      'migrate-from.md',
      'backups.md',
      'damage.md',
      'durability.md',
      'high-availability.md',
      'databases.md',
      'scale.md',
    ],
  },
  {
    title: 'Judge it',
    pages: ['contract.md', 'session-contract.md', 'adk-services.md', 'benchmarks.md', 'growth.md', 'architecture.md'],
  },
];

/** @returns what is wrong with the list, compared with the pages that there are. */
export function navigationProblems(pages: readonly string[]): string[] {
  const listed = NAVIGATION.flatMap((group) => group.pages);
  return [
    ...pages.filter((page) => !listed.includes(page)).map((page) => `docs/${page} is not listed in site/navigation.ts`),
    ...listed
      .filter((page) => !pages.includes(page))
      .map((page) => `site/navigation.ts lists docs/${page}, which is missing`),
  ];
}
