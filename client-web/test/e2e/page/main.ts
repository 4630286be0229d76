import type { Decoded } from "./decode.worker.ts";

declare global {
  interface Window {
    decodeVideo: (objects: readonly string[], width: number, height: number) => Promise<Decoded>;
  }
}

/** Decodes objects of layout W, given in base64, in a worker. */
window.decodeVideo = (objects, width, height) =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./decode.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (e: MessageEvent<Decoded>) => {
      resolve(e.data);
      worker.terminate();
    };
    worker.onerror = (e) => reject(new Error(e.message));
    const bytes = objects.map((o) => Uint8Array.from(atob(o), (c) => c.charCodeAt(0)));
    worker.postMessage({ objects: bytes, width, height });
  });
