import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "./",
  logLevel: "warn",
  build: {
    target: "es2022",
    outDir: fileURLToPath(new URL("../../out/points", import.meta.url)),
    emptyOutDir: true,
    assetsInlineLimit: 0,
  },
  worker: { format: "es" },
});
