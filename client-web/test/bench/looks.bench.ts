/** Times pictures of points and surfaces in Chromium. Writes them as JSON to the file HOLOCAST_LOOKS, if it is set. */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Lab } from "../e2e/lab.ts";
import type { Times } from "./page/looks.ts";

const lab = new Lab();
const PICTURES = 31;
const median = (v: readonly number[]): number => [...v].sort((a, b) => a - b)[v.length >> 1]!;
const round = (v: number): number => Number(v.toFixed(1));

beforeAll(async () => {
  const root = fileURLToPath(new URL("../../", import.meta.url));
  execFileSync("npx", ["vite", "build", "--config", "test/bench/page/vite.config.ts"], { cwd: root, stdio: "inherit" });
  await lab.open();
});

afterAll(() => lab.close());

it("times points and surfaces", async () => {
  const page = await lab.page();
  const results = [];
  for (const [width, height] of [[300, 200], [600, 400]] as const) {
    await page.goto(`http://127.0.0.1:${lab.webPort}/bench/looks.html`);
    await page.waitForFunction(() => window.drawLooks !== undefined);
    const size = [width, height, PICTURES] as const;
    const times: Times = await page.evaluate(([w, h, n]) => window.drawLooks(w, h, n), size);
    const medians = ({ same, fresh }: Times["points"]) => ({ same: round(median(same)), new: round(median(fresh)) });
    results.push({ grid: width * height, points: medians(times.points), surface: medians(times.surface) });
  }
  await page.close();
  console.log(JSON.stringify(results));
  const file = process.env["HOLOCAST_LOOKS"];
  if (file) writeFileSync(file, JSON.stringify(results));
  expect(results.length).toBe(2);
});
