/** Options for starting Chromium. */
import type { LaunchOptions } from "playwright-core";

/** Timeout that guards against hangs, far longer than anything takes on a busy machine. */
export const HANG = 150_000;

export const chromiumPath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";

export const launchOptions = (executablePath = chromiumPath): LaunchOptions => ({
  executablePath,
  headless: true,
  timeout: HANG,
  args: [
    "--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-audio-output", // a fake device, as looking for another one blocks the page
    "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",
  ],
});
