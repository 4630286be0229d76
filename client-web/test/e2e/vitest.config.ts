import { defineConfig } from "vitest/config";
import { HANG } from "./launch.ts";

// Tests wait for events, so the timeouts only guard against hangs. Files run in parallel, as tests use little CPU time.
export default defineConfig({
  test: {
    include: ["test/e2e/*.test.ts"], globalSetup: "test/e2e/programs.ts", provide: { gpu: "mesa" },
    testTimeout: 3 * HANG, hookTimeout: 2 * HANG, teardownTimeout: HANG, maxWorkers: 3, sequence: { concurrent: false },
  },
});
