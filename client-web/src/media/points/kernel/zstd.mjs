// Extracts the wasm binary from zstddec, which embeds it as base64 and loads it from a data: URL.
// The page's Content-Security-Policy forbids data: URLs, and base64 is a third larger.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const source = readFileSync(fileURLToPath(import.meta.resolve("zstddec")), "utf8");
const text = /const wasm = "([A-Za-z0-9+/=]+)"/.exec(source)?.[1];
if (!text) throw new Error("zstddec: no embedded wasm found; adapt kernel/zstd.mjs to this version");
const wasm = Buffer.from(text, "base64");
if (!WebAssembly.validate(wasm)) throw new Error("zstddec: embedded wasm is invalid");
writeFileSync(new URL("../zstd.wasm", import.meta.url), wasm);
