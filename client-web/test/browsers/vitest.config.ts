import { defineConfig } from "vitest/config";
import { HANG } from "../e2e/launch.ts";

// Not part of make test: the browsers are not among its packages.
export default defineConfig({
  test: {
    include: ["test/browsers/*.test.ts"], globalSetup: "test/e2e/programs.ts", testTimeout: 2 * HANG,
    hookTimeout: 2 * HANG, fileParallelism: false, execArgv: ["--experimental-websocket"], // Node 20 has it off
  },
});
