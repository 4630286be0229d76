import type { Result } from "./bench.worker.ts";

declare global {
  interface Window {
    bench: (object: string, runs: number) => Promise<Result>;
  }
}

/** Decodes an object, given in base64, in a worker. */
window.bench = (object, runs) =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./bench.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (e: MessageEvent<Result>) => {
      resolve(e.data);
      worker.terminate();
    };
    worker.onerror = (e) => reject(new Error(e.message));
    const bytes = Uint8Array.from(atob(object), (c) => c.charCodeAt(0));
    worker.postMessage({ bytes, runs }, [bytes.buffer]);
  });
