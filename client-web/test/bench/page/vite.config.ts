import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "./",
  logLevel: "warn",
  build: {
    target: "es2022",
    outDir: fileURLToPath(new URL("../../out/bench", import.meta.url)),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    rollupOptions: { input: ["index.html", "looks.html"].map((f) => fileURLToPath(new URL(f, import.meta.url))) },
  },
  worker: { format: "es" },
});
