/** The first byte of a stored vector. No encoded one begins with it. */
const VERSION = 1;

/** The largest value of a component, which is one byte. */
const MOST = 127;

const largest = (vector: ArrayLike<number>) => {
  let most = 0;
  for (let i = 0; i < vector.length; i++) most = Math.max(most, Math.abs(vector[i] ?? 0));
  return most;
};

/** @returns the direction of a vector with one byte for each component: a search reads that four times as fast. */
export function storedVector(vector: ArrayLike<number>): Buffer | undefined {
  const most = largest(vector);
  if (most === 0) return undefined;
  const stored = Buffer.allocUnsafe(vector.length + 1);
  stored[0] = VERSION;
  for (let i = 0; i < vector.length; i++) stored.writeInt8(Math.round(((vector[i] ?? 0) / most) * MOST), i + 1);
  return stored;
}

/** Whether bytes are a vector of this version of the package, not encoded. */
export const isVector = (bytes: Uint8Array): boolean => bytes[0] === VERSION;

/** @returns a vector of length 1 in the same direction; undefined if the vector has no direction. */
export function unitVector(vector: ArrayLike<number>): Float64Array | undefined {
  const most = largest(vector);
  if (most === 0) return undefined;
  const scaled = Float64Array.from(vector, (component) => component / most);
  const length = Math.sqrt(scaled.reduce((sum, component) => sum + component * component, 0));
  return scaled.map((component) => component / length);
}

/** @param unit a vector of length 1. @returns the cosine; undefined if the dimensions differ. */
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
