import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { Result } from 'axe-core';
import { chromium, type Browser, type Page } from 'playwright-core';
import { areAllRequired } from './run.js';

const PATHS = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
];

/** The Chromium of this machine, or `ADK_TEST_CHROMIUM`; undefined if there is none. */
export function chromiumPath(): string | undefined {
  return [process.env['ADK_TEST_CHROMIUM'] ?? '', ...PATHS].find((file) => existsSync(file));
}

/**
 * @returns whether there is a Chromium.
 * @throws if there is none and `ADK_TEST_REQUIRE=all`.
 */
export function hasChromium(): boolean {
  if (chromiumPath() !== undefined) return true;
  if (areAllRequired())
    throw new Error(`ADK_TEST_REQUIRE=all, but there is no ${PATHS.join(', ')}, and ADK_TEST_CHROMIUM names none`);
  return false;
}

/** Starts a headless Chromium, which the caller closes. */
export function launchChromium(): Promise<Browser> {
  const executablePath = chromiumPath();
  if (executablePath === undefined) throw new Error('There is no Chromium');
  // Containers run tests as root, for whom Chromium has no sandbox, and have little /dev/shm.
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

/**
 * A `describe` of jest in a Chromium; skipped by its name if there is none, which `ADK_TEST_REQUIRE=all` makes a failure.
 *
 * @param tests gets the browser, which its tests and hooks may call for.
 */
export function describeInChromium(name: string, tests: (browser: () => Browser) => void): void {
  if (chromiumPath() === undefined && !areAllRequired()) {
    describe.skip(`${name} (there is no Chromium)`, () => {
      test('needs one', () => undefined);
    });
    return;
  }
  describe(name, () => {
    let launched: Browser;
    beforeAll(async () => {
      hasChromium();
      launched = await launchChromium();
    }, 60_000);
    afterAll(() => launched?.close());
    tests(() => launched);
  });
}

/** @returns the violations of WCAG 2.2 AA that axe-core finds on the page, with their elements. */
export async function accessibilityProblems(page: Page): Promise<string[]> {
  // Not added as a script element, which the page's content security policy may refuse.
  await page.evaluate(axeSource());
  const violations = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as typeof import('axe-core') & { axe: typeof import('axe-core') };
    const { violations } = await axe.run({
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'],
      resultTypes: ['violations'],
    });
    return violations;
  });
  return violations.map(({ id, help, nodes }: Result) => `${id}: ${help}: ${nodes.map(({ html }) => html).join(' ')}`);
}

const axeSource = () =>
  readFileSync(createRequire(path.resolve('package.json')).resolve('axe-core/axe.min.js'), 'utf8');
