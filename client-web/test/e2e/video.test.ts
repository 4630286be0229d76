/** 360° video in tiles: a film of our own, cut and encoded by the capture server. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { freePort, Lab, repo, stats, until, type Program } from "./lab.ts";

const lab = new Lab();
const folder = mkdtempSync(join(tmpdir(), "holocast-film-"));
const film = join(folder, "film.mp4");
let port: number;
let page: Page | undefined;

beforeAll(async () => {
  execFileSync("ffmpeg", ["-v", "error", "-f", "lavfi", "-i", "testsrc2=size=960x480:rate=15", "-t", "12", "-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "veryfast", "-crf", "12", film]);
  await lab.open();
  port = await freePort();
  await lab.relay(port);
});
afterEach(async () => {
  await page?.close();
});
afterAll(async () => {
  await lab.close();
  rmSync(folder, { recursive: true, force: true });
});

async function publish(session: string, ...args: string[]): Promise<Program> {
  const p = lab.program("capture-server", "--source", `equirect:${film}`, ...args, `moqt://127.0.0.1:${port}/${session}`);
  await p.says(/publishing/);
  return p;
}

it("shows", async () => {
  const p = await publish("film", "--grid", "4x2", "--qualities", "2");
  page = await lab.page();
  page.on("console", (m) => console.log("console:", m.text()));
  await page.goto(lab.link(port, "film"));
  await new Promise((r) => setTimeout(r, 12000));
  const s = await stats(page);
  console.log(JSON.stringify({ phase: s.phase, detail: s.detail, video: s.video, mbit: s.mbit_per_s, draw: s.draw_ms, r: s.rendered_fps }), lab.errors, p.output.slice(-600));
  const images = `${repo}client-web/test/out`;
  mkdirSync(images, { recursive: true });
  await page.screenshot({ path: `${images}/film.png` });
  void until;
  expect(s.video!.pictures).toBeGreaterThan(10);
});
