/** Tests properties of media objects with the vectors of internal/loc. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { timestampOf } from "../../src/media/session/loc.ts";
import { readProperties } from "../../src/moqt/message.ts";
import { Reader } from "../../src/moqt/bytes.ts";

interface Vector {
  readonly name: string;
  readonly properties: string;
  readonly micros: number | null;
}
const vectors = JSON.parse(
  readFileSync(new URL("../../../internal/loc/testdata/timestamps.json", import.meta.url), "utf8"),
) as Vector[];

it.each(vectors)("reads the timestamp: $name", ({ properties, micros }) => {
  const p = readProperties(new Reader(Uint8Array.from(Buffer.from(properties, "hex"))), false);
  expect(timestampOf(p)).toBe(micros === null ? undefined : BigInt(micros));
});
