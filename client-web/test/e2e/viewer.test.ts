/** A live session in the viewer. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { Fixture, message, reliable, small } from "./fixture.ts";
import { freePort, hide, hideable, metric, shows, stats, until, type Program } from "./lab.ts";
import { canvasPicture, compare, type Difference, type Picture } from "./picture.ts";

const fixture = new Fixture();
const { lab, open } = fixture;

/** The page's dark background. */
const BACKGROUND = [0x14, 0x16, 0x1c] as const;

/** Limits a page to four pictures per second. */
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
  it("hides the message once a frame is drawn", async () => {
    await fixture.publisher("first", ...small);
    const page = await fixture.view(lab.link(fixture.port, "first"));
    const s = await shows(page);
    expect(s.first_frame_ms).toBeGreaterThan(0);
    await page.locator("#message").waitFor({ state: "hidden" });
  });

  const layouts: [string, ...string[]][] = [
    ["layout A", "--layout", "a"],
    ["layout A in four descriptions", "--layout", "a", "--descriptions", "4"],
    ["layout B", "--layout", "b"],
    ["layout C", "--layout", "c"],
    // At one frame per second, repairs finish before the next frame.
    ["in datagrams, some of them lost", "--layout", "a", "--fps", "1", "--descriptions", "4", "--datagrams", "9",
      ...reliable],
  ];
  it.each(layouts)("draws points like the reference: %s", async (_, ...args) => {
    await fixture.publisher("picture", ...small, ...args);
    const page = await fixture.view(lab.link(fixture.port, "picture"));
    await shows(page, 2);
    if (args.includes("--datagrams")) {
      const s = await until("repaired frames", async () =>
        ((await stats(page)).parts?.repaired ?? 0) > 3 ? stats(page) : undefined,
      );
      console.log(JSON.stringify(s.parts));
      expect(s.frames_lost).toBe(0);
    }
    const { covered, empty } = await looksLikeReference(page, "points", args.slice(0, 2));
    expect(covered).toBeGreaterThan(300);
    expect(empty).toBeGreaterThan(100);
  });

  it.each([["one description", 1], ["four descriptions", 4]])("draws surfaces like the reference: %s", async (_, n) => {
    await fixture.publisher("surface", ...small, "--layout", "a", "--descriptions", String(n));
    const page = await fixture.view(lab.link(fixture.port, "surface"));
    await shows(page, 2);
    const { covered } = await looksLikeReference(page, "surface", ["--layout", "a"]);
    expect(covered).toBeGreaterThan(300);
  });

  /** Waits for a picture like internal/render's, or that of the publisher. */
  async function looksLikeReference(page: Page, look: "surface" | "points", layout: string[]): Promise<Difference> {
    const matrix = await page.evaluate((look) => {
      const { studio } = window.holocast!;
      studio.setTheme("dark");
      studio.grid = false;
      studio.look = look;
      studio.complete = true; // a slow machine would draw fewer points
      studio.lookAt([0.7, 1.5, 1.8], [0, 1.2, -0.4]); // away from the camera, for parallax
      return studio.projection(0)!.join(",");
    }, look);
    let got = await canvasPicture(page);
    const size = ["--viewport", `${got.width}x${got.height}`];
    const rgba = lab.publisherOutput(...small, ...layout, ...size, "--look", look, "--reference", matrix);
    const want: Picture = { width: got.width, height: got.height, rgba };
    let difference = compare(got, want, BACKGROUND);
    // A frame may lack descriptions that were lost or arrived late.
    await until("a picture like the reference", async () => {
      got = await canvasPicture(page);
      difference = compare(got, want, BACKGROUND);
      const similar = look === "points" || difference.ssim > 0.95;
      return similar && difference.worst < 16 && difference.stray < 0.02;
    }).finally(() => console.log(JSON.stringify(difference)));
    return difference;
  }

  /** Makes a publisher with --hold publish its other frames, and waits until none is in transit. */
  async function publishAll(p: Program, page: Page): Promise<void> {
    const before = (await stats(page)).frames_received;
    p.signal("SIGUSR1");
    await until("another frame", async () => (await stats(page)).frames_received > before);
    await p.says(/published all frames/);
    await message(page, /The publisher is silent/);
  }

  it("counts the same frames and bytes as the relay", async () => {
    const args = [...small.slice(0, 4), "--fps", "10", "--frames", "60", "--hold", ...reliable];
    const p = await fixture.publisher("count", ...args);
    const sent = async () =>
      [
        await metric(fixture.port, "holocast_relay_sent_subgroups_total"),
        await metric(fixture.port, "holocast_relay_sent_bytes_total"),
      ] as const;
    const before = await sent();
    const page = await fixture.view(lab.link(fixture.port, "count"));
    await shows(page, 1);
    await publishAll(p, page);
    const after = await sent();
    const s = await stats(page);
    // The tolerance covers the catalog, and the first frame, which is fetched.
    const missing = s.frames_lost + s.streams_refused;
    expect(Math.abs(after[0] - before[0] - s.frames_received - missing)).toBeLessThanOrEqual(3);
    const ratio = s.bytes / (after[1] - before[1]);
    expect(ratio).toBeGreaterThan((0.85 * s.frames_received) / (s.frames_received + missing));
    expect(ratio).toBeLessThan(1.15);
    expect(s.clock.error_ms).not.toBeNull();
    expect(s.points).toBe(57478);
    const panel = await page.locator("#stats").innerText();
    expect(panel).toContain("57,478");
  });

  it("declines frames that it is too slow to draw", async () => {
    const frames = 320; // 16 s: a busy machine draws few
    const sent = () => metric(fixture.port, "holocast_relay_sent_subgroups_total");
    const before = await sent();
    const p = await fixture.publisher(
      "slow",
      ...small.slice(0, 4),
      "--fps",
      "20",
      "--frames",
      `${frames}`,
      "--hold",
      ...reliable,
    );
    const page = await fixture.view(lab.link(fixture.port, "slow"));
    await shows(page, 1);
    await drawSlowly(page);
    await publishAll(p, page);
    const s = await stats(page);
    console.log(JSON.stringify({ ...s, per_camera: s.per_camera[0] }));
    expect(s.frames_declined).toBeGreaterThan(frames / 4);
    if (s.reconnects === 0) expect(s.frames_lost).toBeLessThan(frames / 10); // a starved page may lose its session
    // Every frame up to the last one received counts once, as received, declined or lost.
    const accounted = s.frames_received + s.frames_declined + s.frames_lost;
    expect(accounted).toBeGreaterThan(s.per_camera[0]!.sequence);
    expect(accounted).toBeLessThanOrEqual(frames);
    // The relay has sent no other frames. The tolerance covers the catalog and fetched frames.
    const more = (await sent()) - before - s.frames_received - s.streams_refused;
    expect(more, JSON.stringify(s)).toBeGreaterThanOrEqual(-3);
    expect(more, JSON.stringify(s)).toBeLessThanOrEqual(3 + s.frames_lost);
    await p.stop();
    await message(page, /Session ended/);
  });

  it.each([["answers with an error"], ["resets the subscription", "--cut"]])(
    "continues if a relay refuses updates and %s",
    async (_, ...args) => {
      await fixture.publisher("refused", ...small.slice(0, 4), "--fps", "20");
      const from = await freePort();
      const refusing = await lab.refusing(from, fixture.port, ...args);
      open.push(refusing);
      const page = await fixture.view(lab.link(from, "refused"));
      await shows(page, 3);
      await drawSlowly(page);
      await refusing.says(/refused an update/);
      const before = await stats(page);
      // The viewer subscribes again, to all frames, and skips the ones it cannot draw.
      const after = await until("drawn and skipped frames", async () => {
        const now = await stats(page);
        return now.frames >= before.frames + 4 && now.frames_skipped >= before.frames_skipped + 4 ? now : undefined;
      });
      expect([after.phase, after.reconnects, after.frames_bad], refusing.output + fixture.relay.output).toEqual([
        "live",
        0,
        0,
      ]);
      expect(refusing.output.match(/refused an update/g), JSON.stringify(after)).toHaveLength(1);
    },
  );

  it("shows a late joiner the newest frame at once", async () => {
    await fixture.publisher("late", "--width", "296", "--height", "266", "--frames", "1");
    await shows(await fixture.view(lab.link(fixture.port, "late")), 1);
    const late = await shows(await fixture.view(lab.link(fixture.port, "late")), 1); // no other frame follows
    expect(late.frames).toBe(1);
  });

  it("receives nothing in a hidden tab", async () => {
    await fixture.publisher("hidden", ...small.slice(0, 4), "--fps", "10", ...reliable);
    const page = await fixture.view(lab.link(fixture.port, "hidden"), hideable);
    await shows(page, 2);
    await hide(page, true);
    const sent = () => metric(fixture.port, "holocast_relay_sent_subgroups_total");
    const published = () => metric(fixture.port, "holocast_relay_received_objects_total");
    let from = await published();
    let last = await sent();
    await until("30 frames, none sent by the relay", async () => {
      const now = await sent();
      if (now !== last) from = await published();
      last = now;
      return (await published()) >= from + 30;
    });
    const before = await stats(page);
    expect(before.phase).toBe("live");
    const phases = page.evaluate(() => {
      const list = new Set<string>();
      const timer = setInterval(() => list.add(window.holocast!.stats().phase), 5);
      return new Promise<string[]>((resolve) => {
        setTimeout(() => (clearInterval(timer), resolve([...list])), 1000);
      });
    });
    await hide(page, false);
    const after = await shows(page, before.frames + 2);
    expect(await phases).toEqual(["live"]);
    const frames = after.per_camera[0]!.sequence - before.per_camera[0]!.sequence;
    expect(frames).toBeGreaterThan(25);
    // Frames not sent to the hidden tab are not lost. A busy machine may lose some of the others.
    expect(after.frames_lost - before.frames_lost).toBeLessThan(frames / 2);
    expect(after.phase).toBe("live");
  });

  it("reconnects when the relay restarts", async () => {
    await fixture.publisher("restart", ...small);
    const page = await fixture.view(lab.link(fixture.port, "restart"));
    await shows(page, 2);
    await fixture.relay.stop();
    await message(page, /Connection lost|Relay unreachable/);
    fixture.relay = await fixture.startRelay();
    const before = await stats(page);
    const after = await shows(page, before.frames + 3);
    expect(after.phase).toBe("live");
    expect(after.reconnects).toBeGreaterThan(0);
  });

  it("moves to the relay named in a GOAWAY", async () => {
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

  it("loses no frame during a move", async () => {
    await fixture.publisher("moving", ...small, "--fps", "3", ...reliable); // even a busy machine draws all
    const from = await freePort();
    const leaving = await lab.leaving(from, fixture.port, "moving", "--on-signal");
    open.push(leaving);
    const page = await fixture.view(lab.link(from, "moving"));
    const before = await shows(page, 5);
    expect(before.reconnects).toBe(0);
    // Keep the old session open until its relay closes it, since the time a handover takes depends on the machine.
    await page.workers()[0]!.evaluate(() => {
      const { setTimeout } = self;
      const longer = (f: () => void, ms?: number) => setTimeout(f, ms === 1000 ? 60_000 : ms);
      self.setTimeout = longer as typeof setTimeout;
    });
    leaving.signal("SIGUSR1");
    const moved = await until("the move", async () => {
      const s = await stats(page);
      return s.reconnects > 0 ? s : undefined;
    });
    const after = await shows(page, moved.frames + 30); // past the end of the previous session
    expect(after.reconnects).toBe(1);
    // A frame that the slower session delivers after a newer one is refused.
    const overtaken = after.streams_refused - before.streams_refused;
    expect(after.frames_lost - before.frames_lost).toBeLessThanOrEqual(overtaken);
    expect(after.frames_late).toBe(before.frames_late);
  });

  it("sends a receipt for every frame shown", async () => {
    await fixture.publisher("receipts", ...small);
    const log = await lab.receipts(fixture.port, "receipts");
    open.push(log);
    const page = await fixture.view(lab.link(fixture.port, "receipts"));
    await until("a receipt", async () => /^receipt /m.test(log.output));
    const before = log.output.length;
    const s = await stats(page);
    const shown = await shows(page, s.frames + 10);
    const receipts = await until("receipts", async () => {
      const all = [...log.output.slice(before).matchAll(/^receipt (\S+) 0 (\d+) (-?\d+)$/gm)];
      return all.length >= 10 && Number(all.at(-1)![2]) >= shown.per_camera[0]!.sequence ? all : undefined;
    });
    expect(receipts[0]![1]).toMatch(/^receipts\/web-[0-9a-f]{8}$/);
    const numbers = receipts.map((r) => Number(r[2]));
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b)); // ascending, no duplicates
    const [from, to] = [s.per_camera[0]!.sequence, shown.per_camera[0]!.sequence];
    // Receipts are datagrams, so one may be lost.
    expect(numbers.filter((n) => n > from && n <= to).length).toBeGreaterThanOrEqual(shown.frames - s.frames - 1);
    const quiet = await fixture.view(lab.link(fixture.port, "receipts", "&receipts=off"));
    await shows(quiet, 5);
    expect(new Set([...log.output.matchAll(/^receipt (\S+)/gm)].map((r) => r[1])).size).toBe(1);
  });

  it("authenticates with the token in its link, and reports a missing or invalid one", async () => {
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
      const relay = lab.program(
        "relay",
        "--listen",
        `127.0.0.1:${locked}`,
        "--http",
        `127.0.0.1:${locked}`,
        "--auth-keys",
        key,
      );
      open.push(relay);
      await relay.says(/relay is listening/);
      const p = lab.program(
        "publisher",
        ...small,
        `moqt://127.0.0.1:${locked}/locked#token=${await mint("--publish", "locked")}`,
      );
      open.push(p);
      await p.says(/publishing/);
      const page = await fixture.view(`${lab.link(locked, "locked")}#token=${await mint("--subscribe", "locked")}`);
      await shows(page, 5);
      const other = await fixture.view(`${lab.link(locked, "locked")}#token=${await mint("--subscribe", "lobby")}`);
      await message(
        other,
        /does not serve this[\s\S]*does not allow subscribing in this namespace[\s\S]*Ask for a link with a token/,
      );
      const none = await fixture.view(lab.link(locked, "locked"));
      await message(none, /a token is needed/);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  it.each([["uncompressed"], ["gzip", "--compress"]])("applies delta updates of a catalog: %s", async (_, ...args) => {
    await fixture.publisher("delta", ...small, "--delta", ...args);
    await shows(await fixture.view(lab.link(fixture.port, "delta")), 3);
  });

  it("frames the view again after a correction of the camera's pose, without losing frames", async () => {
    const p = await fixture.publisher("corrected", ...small, "--correct", ...reliable, "--fps", "5");
    const [page, moved] = [
      await fixture.view(lab.link(fixture.port, "corrected")),
      await fixture.view(lab.link(fixture.port, "corrected")),
    ];
    const of = (page: Page) =>
      page.evaluate(() => {
        const { studio } = window.holocast!;
        const drawn: string[] = [];
        studio.stage.traverse((o) => void ("isMesh" in o && drawn.push(o.uuid)));
        return { ...studio.view, drawn, camera: studio.projection(0)!.join() };
      });
    await Promise.all([shows(page), shows(moved)]);
    const first = await of(page);
    expect(Math.hypot(...first.eye)).toBeCloseTo(0, 6); // default position of a camera
    await moved.locator("canvas#view").hover({ position: { x: 500, y: 100 } }); // next to the statistics
    await moved.mouse.wheel(0, 200);
    await until("a step back", async () => Math.hypot(...(await of(moved)).eye) > 0.01);
    // The view keeps moving for a moment.
    let before = await of(moved);
    await until("the view to stand still", async () => {
      await new Promise((resolve) => setTimeout(resolve, 500));
      const earlier = before;
      before = await of(moved);
      return earlier.eye.join() === before.eye.join() && earlier.target.join() === before.target.join();
    });
    p.signal("SIGUSR1");
    const placed = await until("the view from the camera's position", async () => {
      const v = await of(page);
      return Math.hypot(v.eye[0]!, v.eye[1]! - 1.2, v.eye[2]! - 2) < 1e-3 ? v : undefined;
    });
    expect(placed.target[0]).toBeCloseTo(0, 3);
    expect(placed.target[1]).toBeCloseTo(1.2, 3);
    expect(placed.drawn).toEqual(first.drawn); // the mesh is reused
    const after = await until("the camera's new position", async () => {
      const v = await of(moved);
      return v.camera !== before.camera ? v : undefined;
    });
    // Each update of the controls rounds the values.
    const rounded = (v: typeof after) => [...v.eye, ...v.target].map((x) => x.toFixed(6));
    expect([rounded(after), after.drawn]).toEqual([rounded(before), before.drawn]);
    const s = await stats(page);
    const later = await shows(page, s.frames + 3);
    expect([later.frames_bad, later.reconnects]).toEqual([0, 0]);
    // A slow machine declines frames, and after a stall may count some of them as lost.
    if (later.frames_declined === 0) expect(later.frames_lost).toBe(0);
  });

  it("shows the requested quality", async () => {
    open.push(await lab.performer(fixture.port, "qualities", "--fps", "5"));
    const page = await fixture.view(lab.link(fixture.port, "qualities"));
    await shows(page, 3);
    const menu = page.locator("#quality select");
    await until("the menu", () => menu.isVisible());
    // The automatic choice is the full quality unless the machine is too slow for it.
    expect(await menu.locator("option").allInnerTexts()).toEqual([
      expect.stringMatching(/^automatic \((full|low)\)$/),
      "low",
      "full",
    ]);
    await menu.selectOption("full");
    await until("full quality", async () => (await stats(page)).qualities[0] === "full");
    const MANY = 45_000; // fewer points than in full quality, but more than in the lower one
    await until("more points", async () => (await stats(page)).points > MANY);
    await menu.selectOption("low");
    const low = await until("the lower quality", async () => {
      const now = await stats(page);
      return now.qualities[0] === "low" && now.points > 0 && now.points < MANY ? now : undefined;
    });
    expect(low.frames_bad).toBe(0);
    await menu.selectOption("full");
    await until("full quality again", async () => (await stats(page)).points > MANY);
  });

  it("survives malformed objects", async () => {
    await fixture.publisher("hostile", "--hostile", "--width", "296", "--height", "266", "--fps", "10");
    const page = await fixture.view(lab.link(fixture.port, "hostile"));
    const s = await until("bad objects and good frames", async () => {
      const now = await stats(page);
      return now.frames > 10 && now.frames_bad > 15 ? now : undefined;
    });
    expect(s.phase).toMatch(/live|silent/); // silent while the machine stalls
    const later = await shows(page, s.frames + 5);
    expect(later.points).toBeGreaterThan(0);
    expect(await page.evaluate(() => 1 + 1)).toBe(2);
  });

  it("makes no requests to other hosts, and logs no errors", () => {
    expect(lab.foreign).toEqual([]);
    expect(lab.errors).toEqual([]);
    expect(fixture.relay.output).not.toMatch(/FLOW_CONTROL_ERROR|FINAL_SIZE_ERROR|STREAM_STATE_ERROR/);
  });
});
