import { AbstractNamingStrategy, EntityCaseNamingStrategy } from '@mikro-orm/core';
import { AdkCounter, AdkEvent, AdkEventPart, AdkSession, AdkSessionState } from '../../../entities/index.js';
import { migrate } from '../../../migrations/migrate.js';
import { MikroOrmSessionService } from '../../../src/sessions/session-service.js';
import { availableDatabases } from '../../support/servers.js';
import { emptyDatabase, openHost, sessionRow } from './support.js';

/** Changes every name. */
class LoudNamingStrategy extends AbstractNamingStrategy {
  classToTableName(entityName: string): string {
    return `T_${entityName}`;
  }
  propertyToColumnName(propertyName: string): string {
    return `C_${propertyName.toUpperCase()}`;
  }
  joinColumnName(propertyName: string): string {
    return `J_${propertyName}`;
  }
  joinKeyColumnName(entityName: string, referencedColumnName?: string): string {
    return `K_${entityName}_${referencedColumnName}`;
  }
  joinTableName(sourceEntity: string, targetEntity: string): string {
    return `P_${sourceEntity}_${targetEntity}`;
  }
  referenceColumnName(): string {
    return 'ID';
  }
  override indexName(tableName: string, columns: string[], type: 'primary' | 'foreign' | 'unique' | 'index'): string {
    return `I_${tableName}_${columns.join('_')}_${type}`;
  }
}

describe.each([EntityCaseNamingStrategy, LoudNamingStrategy])(
  "F4 the host's %p changes none of our names",
  (strategy) => {
    test.each(availableDatabases())('on %s', async (name) => {
      const orm = await openHost(await emptyDatabase(name), { namingStrategy: strategy });
      await migrate(orm);
      expect(await orm.schema.getUpdateSchemaSQL()).toBe('');

      const em = orm.em.fork();
      const alice = em.create(AdkSession, sessionRow('alice'));
      em.create(AdkEvent, { session: alice, seq: 1, id: 'e1', timestamp: 0.25, data: { author: 'user' } });
      em.create(AdkEventPart, { session: alice, seq: 1, part: 1, text: 'part' });
      em.create(AdkSessionState, { session: alice, key: 'color', value: 'red' });
      await em.flush();
      await orm.em.fork().insert(AdkCounter, { name: 'mine', value: 7 });

      const found = orm.em.fork();
      const ofAlice = { session: { userId: 'alice' } };
      const populate = ['session'] as const;
      const session = { userId: 'alice', createTime: 0.5 };
      expect(await found.find(AdkEvent, ofAlice, { populate })).toMatchObject([{ seq: 1, timestamp: 0.25, session }]);
      expect(await found.find(AdkEventPart, ofAlice, { populate })).toMatchObject([{ seq: 1, text: 'part', session }]);
      expect(await found.find(AdkSessionState, { session: { userId: 'alice' } })).toMatchObject([{ value: 'red' }]);
      expect(await found.find(AdkCounter, { name: 'mine' })).toMatchObject([{ value: 7 }]);

      const service = new MikroOrmSessionService(orm.em);
      const { id: sessionId } = await service.createSession({
        appName: 'app',
        userId: 'bob',
        state: { 'user:color': 1 },
      });
      expect(await service.getSession({ appName: 'app', userId: 'bob', sessionId })).toMatchObject({
        state: { 'user:color': 1 },
      });
    });
  },
);
