import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The longest files first, and last the one that measures what the browser makes of too little time: by then it has the machine to itself. */
class Sequencer extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const busy = (f: TestSpecification) => Number(f.moduleId.endsWith("/busy.test.ts"));
    return (await super.sort(files)).sort((a, b) => busy(a) - busy(b));
  }
}

// Real browsers on a machine that may stall: what fails is tried twice more. The files wait more than they compute: two
// side by side, each with programs and a browser of its own.
export default defineConfig({
  test: {
    include: ["test/e2e/*.test.ts"], globalSetup: "test/e2e/programs.ts", retry: 2, testTimeout: 90_000, hookTimeout: 120_000, maxWorkers: 2,
    sequence: { concurrent: false, sequencer: Sequencer },
  },
});
