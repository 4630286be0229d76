import { defineConfig } from "vitest/config";

// Real browsers on a machine that may stall: what fails is tried twice more. The files wait more than they compute: three
// side by side, each with programs and a browser of its own.
export default defineConfig({
  test: {
    include: ["test/e2e/*.test.ts"], globalSetup: "test/e2e/programs.ts", retry: 2, testTimeout: 300_000, hookTimeout: 300_000, maxWorkers: 3,
    sequence: { concurrent: false },
  },
});
