import { defineConfig } from "vite";

export default defineConfig({
  base: "./", // allows serving the build from any folder
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
    reportCompressedSize: false,
  },
  worker: { format: "es" },
  server: { host: "127.0.0.1" },
});
