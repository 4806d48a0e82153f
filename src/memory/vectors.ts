/** The first byte of a stored vector, which no encoded one begins with. */
const VERSION = 1;

/** What a component is at most: one has a byte. */
const MOST = 127;

const largest = (vector: ArrayLike<number>) => {
  let most = 0;
  for (let i = 0; i < vector.length; i++) most = Math.max(most, Math.abs(vector[i] ?? 0));
  return most;
};

/** @returns the direction of a vector, in a byte for each component, which a search takes a quarter of the time to read. */
export function storedVector(vector: ArrayLike<number>): Buffer | undefined {
  const most = largest(vector);
  if (most === 0) return undefined;
  const stored = Buffer.allocUnsafe(vector.length + 1);
  stored[0] = VERSION;
  for (let i = 0; i < vector.length; i++) stored.writeInt8(Math.round(((vector[i] ?? 0) / most) * MOST), i + 1);
  return stored;
}

/** Whether bytes are a vector that this version of the package has stored; encoded ones are not. */
export const isVector = (bytes: Uint8Array): boolean => bytes[0] === VERSION;

/** @returns a vector of length 1 in the same direction; undefined if it has none. */
export function unitVector(vector: ArrayLike<number>): Float64Array | undefined {
  const most = largest(vector);
  if (most === 0) return undefined;
  const scaled = Float64Array.from(vector, (component) => component / most);
  const length = Math.sqrt(scaled.reduce((sum, component) => sum + component * component, 0));
  return scaled.map((component) => component / length);
}

/** @returns the cosine of both; undefined for a vector of another length. @param unit of length 1. */
export function cosine(unit: Float64Array, stored: Buffer): number | undefined {
  if (stored.length !== unit.length + 1) return undefined;
  const components = new Int8Array(stored.buffer, stored.byteOffset + 1, unit.length);
  let product = 0;
  let square = 0;
  for (let i = 0; i < components.length; i++) {
    const component = components[i] ?? 0;
    product += component * (unit[i] ?? 0);
    square += component * component;
  }
  return product / Math.sqrt(square);
}
