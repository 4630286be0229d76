/** A live session in the viewer. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { Fixture, message, small } from "./fixture.ts";
import { freePort, hide, hideable, metric, shows, stats, until } from "./lab.ts";
import { canvasPicture, compare, type Picture } from "./picture.ts";

const fixture = new Fixture();
const { lab, open } = fixture;

/** Makes a page draw four pictures a second at most. */
const drawSlowly = (page: Page): Promise<void> =>
  page.evaluate(() => {
    const { studio } = window.holocast!;
    const draw = studio.draw.bind(studio);
    studio.draw = (now) => {
      const drew = draw(now);
      const end = performance.now() + (drew ? 250 : 0);
      while (performance.now() < end);
      return drew;
    };
  });

describe("a live session", () => {
  it("has a frame on screen soon after opening", async () => {
    await fixture.publisher("first", ...small);
    const page = await fixture.view(lab.link(fixture.port, "first"));
    const s = await shows(page);
    console.log(`first frame ${s.first_frame_ms} ms after opening`);
    expect(s.first_frame_ms).toBeLessThan(10_000); // one second on a machine of its own
    expect(await page.locator("#message").isHidden()).toBe(true);
  });

  const layouts: [string, ...string[]][] = [
    ["layout A", "--layout", "a"],
    ["layout A in four descriptions", "--layout", "a", "--descriptions", "4"],
    ["layout B", "--layout", "b"],
    ["layout C", "--layout", "c"],
    ["in datagrams, of which some are lost", "--layout", "a", "--descriptions", "4", "--datagrams", "9"],
  ];
  it.each(layouts)("shows the scene where it is: %s", async (_, ...args) => {
    await fixture.publisher("picture", ...small, ...args);
    const page = await fixture.view(lab.link(fixture.port, "picture"));
    await shows(page, 2);
    if (args.includes("--datagrams")) {
      const s = await until("a repaired frame", async () => (((await stats(page)).parts?.repaired ?? 0) > 3 ? stats(page) : undefined));
      console.log(JSON.stringify(s.parts));
      expect(s.frames_lost).toBeLessThan(s.frames_received / 10);
    }
    const matrix = await page.evaluate(() => {
      const { studio } = window.holocast!;
      studio.setTheme("dark");
      studio.grid = false;
      studio.lookAt([0.7, 1.5, 1.8], [0, 1.2, -0.4]); // beside the camera: parallax counts
      return studio.projection(0)!.join(",");
    });
    const got = await canvasPicture(page);
    const raw = lab.publisherOutput(...small, ...args.slice(0, 2), "--viewport", `${got.width}x${got.height}`, "--reference", matrix);
    const want: Picture = { width: got.width, height: got.height, rgba: raw };
    const d = compare(got, want, [0x14, 0x16, 0x1c]);
    console.log(JSON.stringify(d));
    expect(d.covered).toBeGreaterThan(300);
    expect(d.empty).toBeGreaterThan(100);
    expect(d.worst).toBeLessThan(16);
    expect(d.stray).toBeLessThan(0.02);
  });

  it("counts what the relay counts", async () => {
    await fixture.publisher("count", ...small.slice(0, 4), "--fps", "10", "--frames", "60");
    const sent = async () => [await metric(fixture.port, "holocast_relay_sent_subgroups_total"), await metric(fixture.port, "holocast_relay_sent_bytes_total")] as const;
    const before = await sent();
    const page = await fixture.view(lab.link(fixture.port, "count"));
    await message(page, /The publisher is silent/); // so that nothing is on its way
    const after = await sent();
    const s = await stats(page);
    expect(s.frames_received).toBeGreaterThan(10);
    expect(Math.abs(after[0] - before[0] - s.frames_received - s.frames_lost)).toBeLessThanOrEqual(3); // the catalog's, and the first is fetched
    const ratio = s.bytes / (after[1] - before[1]);
    expect(ratio).toBeGreaterThan(0.85);
    expect(ratio).toBeLessThan(1.15);
    expect(s.clock.error_ms).not.toBeNull();
    expect(s.points).toBe(57478);
    const panel = await page.locator("#stats").innerText();
    expect(panel).toContain("57,478");
  });

  it("is not sent what it is too slow to draw", async () => {
    const p = await fixture.publisher("slow", ...small.slice(0, 4), "--fps", "20");
    const sent = () => metric(fixture.port, "holocast_relay_sent_subgroups_total");
    const sentBefore = await sent();
    const page = await fixture.view(lab.link(fixture.port, "slow"));
    await shows(page, 3);
    await drawSlowly(page);
    await until("frames that were declined", async () => (await stats(page)).frames_declined > 20);
    const a = await stats(page);
    await new Promise((resolve) => setTimeout(resolve, 6000));
    const b = await stats(page);
    const came = b.frames_received - a.frames_received;
    const declined = b.frames_declined - a.frames_declined;
    const made = b.per_camera[0]!.sequence - a.per_camera[0]!.sequence;
    console.log(JSON.stringify({ came, declined, made, shown: b.frames - a.frames, lost: b.frames_lost, delay: b.frame_delay_ms }));
    expect(b.frames - a.frames).toBeGreaterThan(5);
    expect(declined).toBeGreaterThan(came);
    expect(b.frames_lost - a.frames_lost).toBeLessThanOrEqual(2);
    expect(b.phase).toBe("live");
    // Every frame is accounted for, but for those about to be shown.
    expect(Math.abs(came + declined - made)).toBeLessThan(0.15 * made);
    // The relay has sent what came, and nothing else; a frame and the catalog may have been fetched.
    await p.stop();
    await message(page, /Session ended/);
    const end = await stats(page);
    const more = (await sent()) - sentBefore - end.frames_received - end.frames_lost;
    expect([end.phase, more], JSON.stringify(end)).toEqual(["ended", expect.toSatisfy((n: number) => Math.abs(n) <= 3)]);
  });

  it.each([["says so"], ["drops the subscription", "--cut"]])("goes on where a relay refuses to send less and %s", async (_, ...args) => {
    await fixture.publisher("refused", ...small.slice(0, 4), "--fps", "20");
    const from = await freePort();
    const refusing = await lab.refusing(from, fixture.port, ...args);
    open.push(refusing);
    const page = await fixture.view(lab.link(from, "refused"));
    await shows(page, 3);
    await drawSlowly(page);
    await refusing.says(/refused an update/);
    const before = await stats(page);
    // It subscribes anew, and to all that there is: it would have asked again by now.
    const after = await shows(page, before.frames + 12);
    expect([after.phase, after.reconnects, after.frames_bad], refusing.output + fixture.relay.output).toEqual(["live", 0, 0]);
    expect(refusing.output.match(/refused an update/g), JSON.stringify(after)).toHaveLength(1);
    expect(after.frames_received - before.frames_received).toBeGreaterThan(2 * (after.frames - before.frames));
  });

  it("shows a late joiner the newest frame at once", async () => {
    await fixture.publisher("late", "--width", "296", "--height", "266", "--fps", "0.05");
    const first = await fixture.view(lab.link(fixture.port, "late"));
    await shows(first, 1);
    const page = await fixture.view(lab.link(fixture.port, "late"));
    const s = await shows(page, 1, 10_000); // the next frame is up to 20 s away
    expect(s.frames).toBe(1);
  });

  it("comes back to live after a stall", async () => {
    await fixture.publisher("stall", ...small);
    const page = await fixture.view(lab.link(fixture.port, "stall"));
    const before = await shows(page, 3);
    await page.evaluate(() => {
      const end = performance.now() + 4000;
      while (performance.now() < end);
    });
    const after = await until("a live frame", async () => {
      const s = await stats(page);
      return s.per_camera[0]!.sequence >= before.per_camera[0]!.sequence + 22 ? s : undefined;
    });
    // What came meanwhile was dropped, not queued: few of some twenty frames are shown late.
    expect(after.frames - before.frames).toBeLessThan(15);
    expect(after.frames_skipped).toBeGreaterThan(before.frames_skipped);
    expect(after.phase).toBe("live");
  });

  it("receives nothing for a tab that is not seen", async () => {
    await fixture.publisher("hidden", ...small);
    const page = await fixture.view(lab.link(fixture.port, "hidden"), hideable);
    await shows(page, 2);
    await hide(page, true);
    const sent = () => metric(fixture.port, "holocast_relay_sent_subgroups_total");
    let last = -1;
    await until("nothing to be sent for a while", async () => {
      const [before, now] = [last, await sent()];
      last = now;
      if (before === now) return true;
      await new Promise((resolve) => setTimeout(resolve, 1500)); // the time of some frames
      return false;
    });
    const before = await stats(page);
    expect(before.phase).toBe("live");
    await hide(page, false);
    const after = await shows(page, before.frames + 2);
    expect(after.per_camera[0]!.sequence).toBeGreaterThan(before.per_camera[0]!.sequence + 5);
    expect(after.frames_lost).toBe(before.frames_lost);
    expect(after.phase).toBe("live");
  });

  it("goes on when the relay comes back", async () => {
    await fixture.publisher("restart", ...small);
    const page = await fixture.view(lab.link(fixture.port, "restart"));
    await shows(page, 2);
    await fixture.relay.stop();
    await message(page, /Connection lost|Relay unreachable/);
    fixture.relay = await lab.relay(fixture.port);
    const before = await stats(page);
    const after = await shows(page, before.frames + 3);
    expect(after.phase).toBe("live");
    expect(after.reconnects).toBeGreaterThan(0);
  });

  it("moves to the relay that GOAWAY names", async () => {
    await fixture.publisher("moved", ...small);
    const from = await freePort();
    const leaving = await lab.leaving(from, fixture.port, "moved");
    open.push(leaving);
    const page = await fixture.view(lab.link(from, "moved"));
    const s = await shows(page, 3);
    expect(s.reconnects).toBeGreaterThan(0);
    expect(s.phase).toBe("live");
    await leaving.stop();
    await shows(page, s.frames + 3);
  });

  it("loses no frame while it moves", async () => {
    await fixture.publisher("moving", ...small, "--fps", "10");
    const from = await freePort();
    open.push(await lab.leaving(from, fixture.port, "moving", "--after", "4s"));
    const page = await fixture.view(lab.link(from, "moving"));
    const before = await shows(page, 5);
    expect(before.reconnects).toBe(0);
    const moved = await until("the move", async () => {
      const s = await stats(page);
      return s.reconnects > 0 ? s : undefined;
    });
    const after = await shows(page, moved.frames + 15); // beyond the end of the session before
    expect(after.reconnects).toBe(1);
    expect([after.frames_lost, after.frames_late]).toEqual([before.frames_lost, before.frames_late]);
  });

  it("sends a receipt of every frame it shows", async () => {
    await fixture.publisher("receipts", ...small);
    const log = await lab.receipts(fixture.port, "receipts");
    open.push(log);
    const page = await fixture.view(lab.link(fixture.port, "receipts"));
    await until("a receipt", async () => /^receipt /m.test(log.output));
    const before = log.output.length;
    const s = await stats(page);
    const shown = await shows(page, s.frames + 10);
    await new Promise((resolve) => setTimeout(resolve, 500));
    const receipts = [...log.output.slice(before).matchAll(/^receipt (\S+) 0 (\d+) (-?\d+)$/gm)];
    expect(receipts.length).toBeGreaterThanOrEqual(9);
    expect(receipts[0]![1]).toMatch(/^receipts\/web-[0-9a-f]{8}$/);
    const numbers = receipts.map((r) => Number(r[2]));
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
    expect(numbers.at(-1)).toBeGreaterThanOrEqual(shown.per_camera[0]!.sequence);
    expect(Number(receipts.at(-1)![3])).toBeLessThan(5e6);
    const quiet = await fixture.view(lab.link(fixture.port, "receipts", "&receipts=off"));
    await shows(quiet, 5);
    expect(new Set([...log.output.matchAll(/^receipt (\S+)/gm)].map((r) => r[1])).size).toBe(1);
  });

  it("is let in by the token in its link, and says so where it is not", async () => {
    const dir = mkdtempSync(join(tmpdir(), "holocast-token-"));
    try {
      const key = join(dir, "relay.key");
      const made = lab.program("relay", "key", key);
      await until("the key", async () => !made.running);
      const mint = async (...args: string[]): Promise<string> => {
        const p = lab.program("relay", "token", "--auth-keys", key, ...args);
        return until("a token", async () => /^ey\S+$/m.exec(p.output)?.[0]);
      };
      const locked = await freePort();
      const relay = lab.program("relay", "--listen", `127.0.0.1:${locked}`, "--http", `127.0.0.1:${locked}`, "--auth-keys", key);
      open.push(relay);
      await relay.says(/relay is listening/);
      const p = lab.program("publisher", ...small, `moqt://127.0.0.1:${locked}/locked#token=${await mint("--publish", "locked")}`);
      open.push(p);
      await p.says(/publishing/);
      const page = await fixture.view(`${lab.link(locked, "locked")}#token=${await mint("--subscribe", "locked")}`);
      await shows(page, 5);
      const other = await fixture.view(`${lab.link(locked, "locked")}#token=${await mint("--subscribe", "lobby")}`);
      await message(other, /does not serve this[\s\S]*does not allow subscribing there[\s\S]*Ask for a link with a token/);
      const none = await fixture.view(lab.link(locked, "locked"));
      await message(none, /a token is needed/);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  it.each([["as it is"], ["in gzip", "--compress"]])("follows delta updates of a catalog: %s", async (_, ...args) => {
    await fixture.publisher("delta", ...small, "--delta", ...args);
    await shows(await fixture.view(lab.link(fixture.port, "delta")), 3);
  });

  it("frames the view again when the camera's pose is corrected, and receives on", async () => {
    const p = await fixture.publisher("corrected", ...small, "--correct");
    const [page, moved] = [await fixture.view(lab.link(fixture.port, "corrected")), await fixture.view(lab.link(fixture.port, "corrected"))];
    const of = (page: Page) =>
      page.evaluate(() => {
        const { studio } = window.holocast!;
        const drawn: string[] = [];
        studio.stage.traverse((o) => void ("isMesh" in o && drawn.push(o.uuid)));
        return { ...studio.view, drawn, camera: studio.projection(0)!.join() };
      });
    await Promise.all([shows(page), shows(moved)]);
    const first = await of(page);
    expect(Math.hypot(...first.eye)).toBeCloseTo(0, 6); // where all cameras are that nobody has placed
    await moved.locator("canvas#view").hover();
    await moved.mouse.wheel(0, 200);
    await until("a step back", async () => Math.hypot(...(await of(moved)).eye) > 0.01);
    const before = await of(moved);
    p.signal("SIGUSR1");
    const placed = await until("the view from the camera's place", async () => {
      const v = await of(page);
      return Math.hypot(v.eye[0]!, v.eye[1]! - 1.2, v.eye[2]! - 2) < 1e-3 ? v : undefined;
    });
    expect(placed.target[0]).toBeCloseTo(0, 3);
    expect(placed.target[1]).toBeCloseTo(1.2, 3);
    expect(placed.drawn).toEqual(first.drawn); // the same points go on
    const after = await until("the camera in its place", async () => {
      const v = await of(moved);
      return v.camera !== before.camera ? v : undefined;
    });
    expect([after.eye, after.target, after.drawn]).toEqual([before.eye, before.target, before.drawn]);
    const s = await stats(page);
    const later = await shows(page, s.frames + 3);
    expect([later.frames_lost, later.frames_bad, later.reconnects]).toEqual([0, 0, 0]);
  });

  it("shows the quality that is asked for", async () => {
    open.push(await lab.performer(fixture.port, "qualities", "--fps", "5"));
    const page = await fixture.view(lab.link(fixture.port, "qualities"));
    await shows(page, 3);
    const menu = page.locator("#quality select");
    await until("the menu", () => menu.isVisible());
    // By itself it takes the full quality, unless the machine is too slow for it.
    expect(await menu.locator("option").allInnerTexts()).toEqual([expect.stringMatching(/^automatic \((full|low)\)$/), "low", "full"]);
    await menu.selectOption("full");
    const chosen = await until("full quality", async () => {
      const now = await stats(page);
      return now.qualities[0] === "full" ? now : undefined;
    });
    const full = await shows(page, chosen.frames + 3);
    await menu.selectOption("low");
    const low = await until("the lower quality", async () => {
      const now = await stats(page);
      return now.qualities[0] === "low" && now.points > 0 && now.points < full.points / 2 ? now : undefined;
    });
    expect(low.frames_bad).toBe(0);
    await menu.selectOption("full");
    await until("the better one again", async () => (await stats(page)).points > full.points / 2);
  });

  it("survives hostile objects", async () => {
    await fixture.publisher("hostile", "--hostile", "--width", "296", "--height", "266", "--fps", "10");
    const page = await fixture.view(lab.link(fixture.port, "hostile"));
    const s = await until("bad objects and good frames", async () => {
      const now = await stats(page);
      return now.frames > 10 && now.frames_bad > 15 ? now : undefined;
    });
    expect(s.phase).toBe("live");
    const later = await shows(page, s.frames + 5);
    expect(later.points).toBeGreaterThan(0);
    expect(await page.evaluate(() => 1 + 1)).toBe(2);
  });

  it("asks no other host for anything, and has no errors", () => {
    expect(lab.foreign).toEqual([]);
    expect(lab.errors).toEqual([]);
    expect(fixture.relay.output).not.toMatch(/FLOW_CONTROL_ERROR|FINAL_SIZE_ERROR|STREAM_STATE_ERROR/);
  });
});
