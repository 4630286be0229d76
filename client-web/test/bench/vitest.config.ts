import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/bench/*.bench.ts"],
    globalSetup: "test/e2e/programs.ts",
    provide: { gpu: "swiftshader" },
    testTimeout: 1_200_000,
    hookTimeout: 120_000,
    fileParallelism: false,
  },
});
