import { defineConfig } from "vitest/config";
import { HANG } from "./launch.ts";

// The timeouts only guard against hangs: tests wait for events. Files run in parallel, as they wait more than they compute.
export default defineConfig({
  test: {
    include: ["test/e2e/*.test.ts"], globalSetup: "test/e2e/programs.ts", testTimeout: 3 * HANG, hookTimeout: 2 * HANG,
    teardownTimeout: HANG, maxWorkers: 3, sequence: { concurrent: false },
  },
});
