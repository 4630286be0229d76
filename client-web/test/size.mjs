// Prints the compressed size of the build, and fails above the limit.
import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const BOUND = 250_000; // bytes, gzip, without wasm

const dist = new URL("../dist/", import.meta.url);
let total = 0;
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue;
  const path = `${entry.parentPath ?? entry.path}/${entry.name}`;
  const size = gzipSync(readFileSync(path), { level: 9 }).length;
  const wasm = entry.name.endsWith(".wasm");
  if (!wasm) total += size;
  console.log(`${(size / 1000).toFixed(1).padStart(8)} kB gzip  ${entry.name}${wasm ? "  (not counted)" : ""}`);
}
console.log(`${(total / 1000).toFixed(1).padStart(8)} kB gzip total, limit ${BOUND / 1000} kB`);
if (total > BOUND) {
  console.error("the bundle is too large: see the sizes above");
  process.exit(1);
}
