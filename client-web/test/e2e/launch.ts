/** Options for starting Chromium. */
import { existsSync } from "node:fs";
import type { LaunchOptions } from "playwright-core";

/** Timeout that guards against hangs, far longer than anything takes on a busy machine. */
export const HANG = 150_000;

export const chromiumPath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const shell = "/usr/bin/chromium-headless-shell";
/** For tests. Chromium starts a process per window; the headless shell has no windows. */
export const testChromiumPath = process.env["CHROMIUM"] ?? (existsSync(shell) ? shell : chromiumPath);

/**
 * Drivers that emulate a GPU: Mesa for tests, SwiftShader for benchmarks. Mesa takes about a third of SwiftShader's CPU
 * time. Without Mesa, Chromium uses SwiftShader.
 */
export type Gpu = "mesa" | "swiftshader";

const gpus: Record<Gpu, string[]> = {
  mesa: ["--use-angle=gl-egl", "--disable-gpu-compositing", "--disable-gpu-rasterization"],
  swiftshader: ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
};

export const launchOptions = (
  gpu: Gpu,
  executablePath = gpu === "mesa" ? testChromiumPath : chromiumPath,
): LaunchOptions => ({
  executablePath,
  headless: true,
  timeout: HANG,
  args: [
    "--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-audio-output", // a fake device, as looking for another one blocks the page
    "--use-gl=angle", "--ignore-gpu-blocklist", ...gpus[gpu],
  ],
});
