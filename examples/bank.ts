import { appendFile, readFile } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';

export interface Payment {
  invoice: string;
  euros: number;
}

/** The worker that waits for it is killed meanwhile. */
const CONFIRMATION_MS = 30_000;

/** Stands in for an external system: its payments are not undone if the process that ordered them dies. */
export class Bank {
  readonly #file: string;
  readonly #onPaid: () => void;

  constructor(file: string, onPaid: () => void = () => undefined) {
    this.#file = file;
    this.#onPaid = onPaid;
  }

  /** Pays at once, but answers late. */
  async pay(payment: Payment): Promise<Payment> {
    await appendFile(this.#file, JSON.stringify(payment) + '\n');
    this.#onPaid();
    await setTimeout(CONFIRMATION_MS);
    return payment;
  }

  async payments(): Promise<Payment[]> {
    const lines = await readFile(this.#file, { encoding: 'utf8', flag: 'a+' });
    return lines
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Payment);
  }
}
