/** Builds the programs that tests start, once for all files. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    /** The folder of the programs. */
    programs: string;
  }
}

export default function setup(project: TestProject): () => void {
  const folder = mkdtempSync(join(tmpdir(), "holocast-web-programs-"));
  const from = process.env["HOLOCAST_GO_DIR"] ?? fileURLToPath(new URL("../../../", import.meta.url));
  execFileSync("go", ["build", "-o", `${folder}/`, "./relay", "./capture-server", "./tools/holocast", "./client-web/test/publisher", "./tools/interop/rough"], { cwd: from, stdio: "inherit" });
  project.provide("programs", folder);
  return () => rmSync(folder, { recursive: true, force: true });
}
