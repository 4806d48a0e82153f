import { defineEntity, p } from '@mikro-orm/core';

/** A table of the host's own, beside ours. */
export const HostNote = defineEntity({
  name: 'HostNote',
  tableName: 'host_notes',
  properties: { id: p.integer().primary().autoincrement(false), text: p.string() },
});

export const CREATE_HOST_NOTES = 'create table host_notes (id integer primary key, text varchar(255) not null)';
