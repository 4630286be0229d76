/** The encrypted objects that internal/secureobjects shares with other implementations. */
import { readFileSync } from "node:fs";

export interface SealedVector {
  readonly keys: string;
  readonly namespace: string[];
  readonly name: string;
  readonly group: string;
  readonly object: string;
  readonly priority: number;
  readonly properties: string;
  readonly payload: string;
  readonly sealedProperties: string;
  readonly sealed: string;
}

export const load = <T>(name: string): T =>
  JSON.parse(readFileSync(new URL(`../../../internal/secureobjects/testdata/${name}`, import.meta.url), "utf8")) as T;
export const unhex = (s: string): Uint8Array<ArrayBuffer> => Uint8Array.from(Buffer.from(s, "hex"));
export const hex = (b: Uint8Array): string => Buffer.from(b).toString("hex");
export const objects = load<SealedVector[]>("objects.json");
