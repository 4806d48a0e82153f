/**
 * A stand-in of a host's object, which stays as it is. It has some members of its own. The other methods are
 * called on the host's object, since MikroORM 7 and kysely have private fields.
 *
 * @param members by their names.
 */
export function standIn<T extends object>(object: T, members: object): T {
  return new Proxy(object, {
    get(target, name) {
      if (name in members) return Reflect.get(members, name) as unknown;
      const member: unknown = Reflect.get(target, name);
      return typeof member === 'function' ? (member.bind(target) as unknown) : member;
    },
  });
}
