// Takes the wasm out of zstddec, which carries it as text and fetches it from a data: URL: pages whose
// policy forbids that could not decode, and the text is a third longer.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const source = readFileSync(fileURLToPath(import.meta.resolve("zstddec")), "utf8");
const text = /const wasm = "([A-Za-z0-9+/=]+)"/.exec(source)?.[1];
if (!text) throw new Error("zstddec does not carry its wasm as it used to");
const wasm = Buffer.from(text, "base64");
if (!WebAssembly.validate(wasm)) throw new Error("what zstddec carries is no wasm");
writeFileSync(new URL("../zstd.wasm", import.meta.url), wasm);
