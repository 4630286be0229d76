import { defineConfig } from "vitest/config";

// Real browsers on a machine that may stall: what fails is tried twice more.
export default defineConfig({
  test: { retry: 2, include: ["test/e2e/*.test.ts"], testTimeout: 90_000, hookTimeout: 120_000, fileParallelism: false, sequence: { concurrent: false } },
});
