import { defineEntity, p, type InferEntity } from '@mikro-orm/core';
import { AdkArtifact } from './adk-artifact.js';
import { json, optionalBytes, time } from './columns.js';
import { withCollatedType, withSharedClass } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** One version of a file. It is never changed. */
export const adkArtifactVersion = ({ named, table }: Naming) =>
  withSharedClass(
    defineEntity({
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
        /**
         * 0, 1, 2 … without gaps. A row with a negative number is an upload: parts of a stream are under it before there is a version.
         */
        version: p.integer().fieldName('version').primary().autoincrement(false).unsigned(false),
        /** The Part without its content, what the caller said of it, and the content's type, size and hash. */
        info: json('info'),
        /** The content; null when it is kept in parts, see `AdkArtifactPart`, and when there is none. */
        data: optionalBytes('data'),
        /** The upload under whose number the parts are; null if they are under that of the version. */
        upload: p.integer().fieldName('upload').nullable(),
        /** By the database's clock. */
        createTime: time('create_time'),
      },
    }),
  );

export const AdkArtifactVersion = adkArtifactVersion(naming());
export type AdkArtifactVersion = InferEntity<typeof AdkArtifactVersion>;
