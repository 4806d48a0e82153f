import { p, type InferEntity } from '@mikro-orm/core';
import { AdkArtifact } from './adk-artifact.js';
import { json, optionalBytes, time } from './columns.js';
import { withCollatedType, sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** One version of a file. It is never changed. */
export const adkArtifactVersion = ({ named, table }: Naming) =>
  sharedEntity({
    name: 'AdkArtifactVersion',
    ...table('artifact_versions'),
    properties: {
      artifact: () =>
        withCollatedType(p.manyToOne(AdkArtifact))
          .primary()
          .joinColumns('app_name', 'user_id', 'session_id', 'filename')
          .foreignKeyName(named('artifact_versions_artifact'))
          .index(false)
          .deleteRule('cascade')
          .updateRule('no action'),
      /** 0, 1, 2 … without gaps. */
      version: p.integer().fieldName('version').primary().autoincrement(false).unsigned(false),
      /** The Part without its content, the caller's metadata, and the content's type, size and hash. */
      info: json('info'),
      /** The content; null if it is kept in parts, see `AdkArtifactPart`, or there is none. */
      data: optionalBytes('data'),
      /** By the database's clock. */
      createTime: time('create_time'),
    },
  });

export const AdkArtifactVersion = adkArtifactVersion(naming());
export type AdkArtifactVersion = InferEntity<typeof AdkArtifactVersion>;
