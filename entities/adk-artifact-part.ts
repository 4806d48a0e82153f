import { p, type InferEntity } from '@mikro-orm/core';
import { AdkArtifactVersion } from './adk-artifact-version.js';
import { bytes } from './columns.js';
import { withCollatedType, sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** A piece of the content of a version that is too large for one packet to a server. */
export const adkArtifactPart = ({ named, table }: Naming) =>
  sharedEntity({
    name: 'AdkArtifactPart',
    ...table('artifact_parts'),
    properties: {
      artifactVersion: () =>
        withCollatedType(p.manyToOne(AdkArtifactVersion))
          .primary()
          .joinColumns('app_name', 'user_id', 'session_id', 'filename', 'version')
          .foreignKeyName(named('artifact_parts_version'))
          .index(false)
          .deleteRule('cascade')
          .updateRule('no action'),
      part: p.integer().fieldName('part').primary().autoincrement(false),
      data: bytes('data'),
    },
  });

export const AdkArtifactPart = adkArtifactPart(naming());
export type AdkArtifactPart = InferEntity<typeof AdkArtifactPart>;
