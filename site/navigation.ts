/** The pages of docs/ in the order of the site, by what a reader wants. An unlisted page fails `npm run site` and test/hosts/docs. */
export const NAVIGATION: readonly { title: string; pages: readonly string[] }[] = [
  { title: 'Start', pages: ['README.md', 'when-not.md', 'guides/which-database.md', 'coming-from.md', 'dev-ui.md'] },
  {
    title: 'Build',
    pages: [
      'recipes.md',
      'artifacts.md',
      'guides/files-of-a-conversation.md',
      'memory.md',
      'guides/remember-a-user.md',
      'guides/forget-a-user.md',
      'credentials.md',
      'guides/after-a-crash.md',
      'guides/several-workers.md',
      'tools.md',
      'leases.md',
      'event-log.md',
      'projections.md',
      'frameworks.md',
      'nestjs.md',
      'testing.md',
    ],
  },
  {
    title: 'Operate',
    pages: [
      'where-it-runs.md',
      'production.md',
      'row-level-security.md',
      'migrations.md',
      'guides/upgrade.md',
      'operations.md',
      'maintenance.md',
      'guides/delete-a-person.md',
      'codecs.md',
      'telemetry.md',
      'studio.md',
      'backups.md',
      'damage.md',
      'high-availability.md',
      'scale.md',
      'migrate-from.md',
    ],
  },
  {
    title: 'Reference',
    pages: [
      'options.md',
      'errors.md',
      'contract.md',
      'tables.md',
      'databases.md',
      'durability.md',
      'session-contract.md',
      'adk-services.md',
      'benchmarks.md',
      'growth.md',
      'architecture.md',
    ],
  },
];

/** @returns the pages that the list lacks, and those that it has without a file. */
export function navigationProblems(pages: readonly string[]): string[] {
  const listed = NAVIGATION.flatMap((group) => group.pages);
  return [
    ...pages.filter((page) => !listed.includes(page)).map((page) => `docs/${page} is not listed in site/navigation.ts`),
    ...listed
      .filter((page) => !pages.includes(page))
      .map((page) => `site/navigation.ts lists docs/${page}, which is missing`),
  ];
}
