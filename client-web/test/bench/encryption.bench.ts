/** Measures how long Chromium takes to decrypt an object with WebCrypto (docs/results/encryption.md). */
import { afterAll, beforeAll, it } from "vitest";
import { Lab } from "../e2e/lab.ts";

const lab = new Lab();
beforeAll(() => lab.open());
afterAll(() => lab.close());

/** Payload sizes, bytes: a frame, a tile, a part of a frame and a sound packet. */
const sizes = [250_000, 20_000, 1_094, 100];

it("decrypts objects", async () => {
  const page = await lab.page();
  await page.goto(`http://127.0.0.1:${lab.webPort}/`);
  for (const bytes of sizes) {
    const result = await page.evaluate(async (bytes) => {
      const key = await crypto.subtle.importKey("raw", new Uint8Array(16), "AES-GCM", false, ["encrypt", "decrypt"]);
      const p = { name: "AES-GCM", iv: new Uint8Array(12), additionalData: new Uint8Array(19) };
      const sealed = await crypto.subtle.encrypt(p, key, new Uint8Array(bytes));
      const open = async (n: number): Promise<number> => {
        const began = performance.now();
        for (let i = 0; i < n; i++) await crypto.subtle.decrypt(p, key, sealed);
        return (performance.now() - began) / n;
      };
      await open(50);
      const list: number[] = [];
      for (let i = 0; i < 100; i++) list.push(await open(20)); // performance.now counts in steps of 0.1 ms
      list.sort((a, b) => a - b);
      return { bytes, ms_min: list[0], ms_p50: list[50], ms_p95: list[95] };
    }, bytes);
    console.log(JSON.stringify(result));
  }
});
