import type { AuthConfig, AuthCredential, BaseCredentialService, Context } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import { Database } from '../database/calls/database.js';
import { onceOnRows } from '../database/calls/once.js';
import { bound, textOf } from '../database/sql/values.js';
import { anything, object } from '../model/arguments.js';
import { ofCredential } from '../model/codec.js';
import { Undecodable, namesKey } from '../model/stored-texts.js';
import { CodecError, InvalidArgumentError } from '../model/errors.js';
import { decode, encode } from '../model/json.js';
import { checkKeys } from '../model/keys.js';
import { COMMON_OPTIONS, type CommonOptions } from '../model/options.js';

/** The key of a credential. */
interface CredentialAddress {
  appName: string;
  userId: string;
  /** The `credentialKey` of the tool's `AuthConfig`. */
  credentialKey: string;
}

const checkOptions = object(COMMON_OPTIONS);

const checkAddress = object<CredentialAddress>({ appName: anything, userId: anything, credentialKey: anything });

const KEY = 'app_name, user_id, credential_key';
const IN_KEY = 'app_name = :appName and user_id = :userId and credential_key = :credentialKey';

/**
 * ADK's credential service in the host's own database: a user's tokens by app, user and key, always encrypted. ADK's own persistent
 * service keeps them in the state of the session, where pages and exports show them.
 *
 * ```ts
 * const codec = encryption({ key: (id) => keys.get(id), currentKey: '2026' });
 * const runner = new Runner({ appName: 'support', agent, ...adkServices(orm.em, { codec }) });
 * ```
 *
 * Every method may throw `InvalidKeyError`, `SchemaError`, `DatabaseError`, `CodecError` and `InsideTransactionError`, as those of
 * `MikroOrmSessionService` do.
 */
export class MikroOrmCredentialService implements BaseCredentialService {
  readonly #database: Database;
  readonly #options: CommonOptions;

  /**
   * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
   * @throws InvalidArgumentError without a codec, or if an option is unknown or its value is invalid.
   * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()`.
   */
  constructor(em: EntityManager, options: CommonOptions);
  /** @internal @param database joins the caller's transaction. */
  // eslint-disable-next-line @typescript-eslint/unified-signatures -- left out of the package's declarations
  constructor(em: EntityManager, options: CommonOptions, database: Database);
  constructor(em: EntityManager, options: CommonOptions, database?: Database) {
    this.#options = checkOptions(options, 'The options of MikroOrmCredentialService');
    this.#database = database ?? new Database(em, this.#options);
    if (this.#database.codec.isNone)
      throw new InvalidArgumentError(
        'MikroOrmCredentialService needs a codec that encrypts: credentials are never stored as they are. Pass codec: encryption({ … }) ' +
          "from 'adk-mikro-orm/codecs'.",
      );
  }

  /**
   * This service inside the caller's transaction, so that a credential and the caller's own rows commit or roll back together
   * (contract E5).
   *
   * @param tx the `EntityManager` from `em.transactional`.
   * @throws InvalidArgumentError if `tx` has other tables than this service: those of another schema or another ORM.
   */
  withEntityManager(tx: EntityManager): MikroOrmCredentialService {
    return new MikroOrmCredentialService(tx, this.#options, this.#database.join(tx));
  }

  /**
   * Reads the credential that was last saved under the key of a tool's `AuthConfig`.
   *
   * @returns undefined if there is none, or it cannot be read any more, because its key is gone or somebody has changed the row.
   *   ADK then asks the user again.
   */
  async loadCredential(authConfig: AuthConfig, toolContext: Context): Promise<AuthCredential | undefined> {
    const address = addressOf(authConfig, toolContext);
    const read = () =>
      this.#database.run(async (sql) => {
        const text = `select ${sql.tables.select.data} as data from ${sql.tables.credentials} where ${IN_KEY}`;
        const [row] = await sql.all<{ data: string }>(...bound(text, { ...address }));
        const stored = row && textOf(row.data);
        // Somebody else wrote a text that is not encrypted. A tool must not log in with it.
        if (stored === undefined || !namesKey(stored)) return undefined;
        return sql.texts.decode(stored, () => ofCredential(address, address.credentialKey));
      });
    const json = await this.#database.call({ operation: 'loadCredential', key: ownerOf(address) }, read);
    return json === undefined || json instanceof Undecodable ? undefined : (decode(json)?.value as AuthCredential);
  }

  /**
   * Saves the credential that a tool has exchanged, and replaces the previous one. Without `exchangedAuthCredential` it does nothing,
   * like ADK's own services.
   *
   * @throws CodecError also if no codec has encrypted it. Nothing was written.
   */
  async saveCredential(authConfig: AuthConfig, toolContext: Context): Promise<void> {
    const address = addressOf(authConfig, toolContext);
    const { exchangedAuthCredential } = authConfig;
    if (!exchangedAuthCredential) return;
    const { json } = encode(exchangedAuthCredential, 'credential');
    await this.#database.call({ operation: 'saveCredential', key: ownerOf(address) }, async () => {
      await onceOnRows(this.#database, async (sql) => {
        const data = sql.texts.encode(json, () => ofCredential(address, address.credentialKey));
        if (!namesKey(data)) throw new CodecError('No codec has encrypted the credential. Nothing was written.');
        await sql.dialect.limits?.refuseTooLarge(sql, 'A credential', data);
        const insert = `insert into ${sql.tables.credentials} (${KEY}, update_time, data)
          values (:appName, :userId, :credentialKey, ${sql.dialect.sql.now}, :data)
          ${sql.dialect.sql.onSameKey(KEY, ['update_time', 'data'])}`;
        await sql.run(...bound(insert, { ...address, data }));
      });
    });
  }

  /**
   * Deletes a credential, for example when the user logs out.
   *
   * @returns whether there was one.
   * @throws InvalidArgumentError for an unknown property.
   */
  async deleteCredential(credential: { appName: string; userId: string; credentialKey: string }): Promise<boolean> {
    const address = checkAddress(credential, 'The request of deleteCredential');
    checkKeys(address);
    return this.#database.call({ operation: 'deleteCredential', key: ownerOf(address) }, () =>
      onceOnRows(this.#database, async (sql) => {
        const text = `delete from ${sql.tables.credentials} where ${IN_KEY}`;
        return (await sql.run(...bound(text, { ...address }))).affectedRows > 0;
      }),
    );
  }
}

/** @throws InvalidKeyError. */
function addressOf({ credentialKey }: AuthConfig, { invocationContext }: Context): CredentialAddress {
  const { appName, userId } = invocationContext.session;
  const address = { appName, userId, credentialKey };
  checkKeys(address);
  return address;
}

const ownerOf = ({ appName, userId }: CredentialAddress) => ({ appName, userId });
