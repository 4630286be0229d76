/** Readers for untrusted JSON documents. Errors name the path of the offending value. */

export class CatalogError extends Error {
  constructor(
    readonly path: string,
    detail: string,
  ) {
    super(`catalog: ${path}: ${detail}`);
    this.name = "CatalogError";
  }
}

export type Json = Readonly<Record<string, unknown>>;

export function object(v: unknown, path: string): Json {
  if (typeof v !== "object" || v === null || Array.isArray(v)) throw new CatalogError(path, "not an object");
  return v as Json;
}

export function array(v: unknown, path: string, limit: number): readonly unknown[] {
  if (!Array.isArray(v)) throw new CatalogError(path, "not an array");
  if (v.length > limit) throw new CatalogError(path, `${v.length} entries, more than ${limit}`);
  return v;
}

export function text(v: unknown, path: string): string {
  if (typeof v !== "string") throw new CatalogError(path, "not a string");
  return v;
}

export function flag(v: unknown, path: string): boolean {
  if (typeof v !== "boolean") throw new CatalogError(path, "neither true nor false");
  return v;
}

export function number(v: unknown, path: string, min: number, max: number): number {
  if (typeof v !== "number" || !(v >= min && v <= max)) throw new CatalogError(path, `not a number in ${min}…${max}`);
  return v;
}

export function integer(v: unknown, path: string, min: number, max: number): number {
  const n = number(v, path, min, max);
  if (!Number.isInteger(n)) throw new CatalogError(path, "not a whole number");
  return n;
}

export function numbers(v: unknown, path: string, count: number): number[] {
  const list = array(v, path, count);
  if (list.length !== count) throw new CatalogError(path, `${list.length} numbers, want ${count}`);
  return list.map((x, i) => number(x, `${path}[${i}]`, -Number.MAX_VALUE, Number.MAX_VALUE));
}

/** Parses a document of at most `limit` bytes whose root is an object. */
export function parseObject(payload: Uint8Array, limit: number): Json {
  if (payload.length > limit) throw new CatalogError("$", `${payload.length} bytes, more than ${limit}`);
  return object(parse(payload, "$"), "$");
}

export function parse(payload: Uint8Array, path: string): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(payload));
  } catch (e) {
    throw new CatalogError(path, e instanceof Error ? e.message : "not JSON");
  }
}
