/** Builds the programs and starts the browser, once for all test files. The configuration selects the GPU. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import type { TestProject } from "vitest/node";
import { launchOptions, type Gpu } from "./launch.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Directory of the programs. */
    programs: string;
    /** WebSocket endpoint of the browser. */
    browser: string;
    gpu: Gpu;
  }
}

const packages = [
  "./relay",
  "./capture-server",
  "./tools/holocast",
  "./client-web/test/publisher",
  "./tools/interop/rough",
];

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const root = fileURLToPath(new URL("../../../", import.meta.url));
  const cwd = process.env["HOLOCAST_GO_DIR"] ?? root;
  const folder = join(root, "build/programs/web"); // kept between runs, to avoid linking unchanged programs again
  execFileSync("go", ["build", "-o", `${folder}/`, ...packages], { cwd, stdio: "inherit" });
  project.provide("programs", folder);
  const browser = await chromium.launchServer(launchOptions(project.getProvidedContext().gpu));
  project.provide("browser", browser.wsEndpoint());
  return () => browser.close();
}
