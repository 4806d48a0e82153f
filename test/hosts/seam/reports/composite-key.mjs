// Report for MikroORM 6.6 and 7.2 with SQLite: a foreign key of two columns is read as two keys of one, so the schema of tables that
// were just created differs from that of the entities, and each `schema:update` rebuilds the table. Expected: no statement.
import { EntitySchema, MikroORM } from '@mikro-orm/libsql';

const id = { type: 'string', primary: true };
const Session = new EntitySchema({ name: 'Session', properties: { app: id, id } });
const Note = new EntitySchema({
  name: 'Note',
  properties: {
    number: { type: 'integer', primary: true },
    session: { kind: 'm:1', entity: () => Session, deleteRule: 'cascade' },
  },
});
const orm = await MikroORM.init({ dbName: ':memory:', entities: [Session, Note] });
await orm.schema.execute(await orm.schema.getCreateSchemaSQL());
console.log(await orm.schema.getUpdateSchemaSQL());
await orm.close();
