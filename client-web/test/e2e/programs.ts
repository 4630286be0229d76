/** Builds the programs that tests start, once for all files. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    /** The folder of the programs. */
    programs: string;
  }
}

export default function setup(project: TestProject): void {
  const root = fileURLToPath(new URL("../../../", import.meta.url));
  const from = process.env["HOLOCAST_GO_DIR"] ?? root;
  const folder = join(root, "build/programs/web"); // what has not changed is not linked again
  execFileSync("go", ["build", "-o", `${folder}/`, "./relay", "./capture-server", "./tools/holocast", "./client-web/test/publisher", "./tools/interop/rough"], { cwd: from, stdio: "inherit" });
  project.provide("programs", folder);
}
