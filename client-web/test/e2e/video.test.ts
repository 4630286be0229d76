/** 360° video, live and recorded, with and without point clouds. */
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Cinema, sharp, turn, video } from "./cinema.ts";
import { listens, reportDecoded } from "./ear.ts";
import { message } from "./fixture.ts";
import { hide, hideable, repo, shows, stats, until } from "./lab.ts";
import { canvasPicture } from "./picture.ts";

const cinema = new Cinema();
beforeAll(() => reportDecoded(cinema.lab));
const { folder, lab, open } = cinema;
const images = process.env["PICTURES"] ?? `${repo}client-web/test/out`;

/** A film that becomes brighter every second, with a tone in every other second. */
const GREYS = 6;
const grey = (second: number): number => 30 + 25 * second;
function steps(): string {
  const file = join(folder, "steps.mp4");
  execFileSync("ffmpeg", [
    "-v",
    "error",
    "-f",
    "lavfi",
    "-i",
    "color=gray:size=640x320:rate=10",
    "-f",
    "lavfi",
    "-i",
    "aevalsrc='0.5*sin(2*PI*440*t)*lt(mod(t,2),1)':s=48000",
    "-t",
    `${GREYS}`,
    "-vf",
    `geq=lum='${grey(0)}+25*floor(T+0.01)':cb=128:cr=128`,
    "-c:v",
    "libx264",
    "-crf",
    "10",
    "-pix_fmt",
    "yuv420p",
    "-c:a",
    "aac",
    file,
  ]);
  return file;
}

declare global {
  interface Window {
    /** Media times, in ms, at which the brightness, the decoded tone and the played tone change. */
    changes?: { readonly brightness: number[]; readonly tone: number[]; readonly heard: number[] };
  }
}

/**
 * Init script that fills window.changes from played sound, and from decoded pictures and sound, which do not depend on
 * a slow machine's pace.
 */
const recordsChanges = `${listens}{
  const changes = (window.changes = { brightness: [], tone: [], heard: [] });
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  let before;
  const picture = ({ frame, tile }) => {
    if (!frame || tile !== -1) return;
    pen.drawImage(frame, 0, 0, 1, 1);
    const now = pen.getImageData(0, 0, 1, 1).data[0];
    if (before !== undefined && Math.abs(now - before) > 12) changes.brightness.push(frame.timestamp / 1000);
    before = now;
  };
  const WINDOW = 240;
  const GAP = 12;
  const detector = (list) => {
    let loud;
    let end;
    return (samples, sampleRate, begin) => {
      if (Math.abs(begin - end) > GAP) loud = undefined; // the gap may contain a change
      end = begin + (1000 * samples.length) / sampleRate;
      for (let i = 0; i + WINDOW <= samples.length; i += WINDOW) {
        const now = samples.subarray(i, i + WINDOW).some((v) => Math.abs(v) > 0.1);
        if (loud !== undefined && now !== loud) list.push(begin + (1000 * i) / sampleRate);
        loud = now;
      }
    };
  };
  window.Worker = class extends Worker {
    constructor(...args) {
      super(...args);
      this.addEventListener("message", ({ data }) => picture(data));
    }
  };
  ear.decoded = detector(changes.tone);
  const heard = detector(changes.heard);
  ear.heard = (samples, rate, begin) => {
    const local = performance.timeOrigin + performance.now();
    heard(samples, rate, holocast.stats().video.due_ms + begin - local);
  };
}`;

describe("360° video", () => {
  it("continues when the relay restarts", async () => {
    await cinema.publish("again", cinema.mono.file);
    const page = await cinema.watch("again");
    await cinema.relay.stop();
    cinema.relay = await cinema.startRelay();
    const before = (await video(page))!.pictures;
    await until("more pictures", async () => ((await video(page))?.pictures ?? 0) > before + 10);
    await sharp(page);
    expect((await stats(page)).reconnects).toBeGreaterThan(0);
  });

  it("continues after the tab stalled or was hidden", async () => {
    await cinema.publish("stall", cinema.mono.file);
    const page = await cinema.watch("stall", "", hideable);
    await sharp(page);
    const before = (await video(page))!;
    await page.evaluate(() => {
      for (const end = performance.now() + 3000; performance.now() < end; ); // blocks the page, not its workers
    });
    await until("more pictures", async () => (await video(page))!.pictures > before.pictures + 5);
    const after = await sharp(page);
    await until("live pictures", async () => (await video(page))!.delay_ms < 2500);
    expect(after.bad).toBe(before.bad);

    await hide(page, true);
    let last = -1;
    await until("the end of media", async () => {
      const earlier = last;
      last = (await stats(page)).bytes;
      if (earlier === last) return true;
      await new Promise((resolve) => setTimeout(resolve, 2000)); // two GoPs
      return false;
    });
    const { pictures } = (await video(page))!;
    await hide(page, false);
    await until("pictures again", async () => (await video(page))!.pictures > pictures + 5);
    await sharp(page);
  });

  it("refuses a catalog with too many tiles", async () => {
    const file = join(folder, "catalog.json");
    const hcsphere = {
      projection: "equirectangular",
      stereo: "mono",
      width: 16384,
      height: 8192,
      columns: 128,
      rows: 128,
      qualities: 8,
    };
    const track = {
      name: "video",
      packaging: "loc",
      isLive: true,
      role: "video",
      renderGroup: 2,
      targetLatency: 1000,
      codec: "avc1.42c01e",
      width: 480,
      height: 240,
      framerate: 30,
      maxGopDuration: 1000,
      hcsphere,
    };
    writeFileSync(file, JSON.stringify({ version: "draft-01", generatedAt: 1, tracks: [track] }));
    open.push(await lab.publisher(cinema.port, "grid", "--catalog", file));
    const page = await lab.page();
    open.push(page);
    await page.goto(lab.link(cinema.port, "grid"));
    const text = await message(page, /128×128 tiles/);
    expect(text).toContain("hcsphere");
    expect((await stats(page)).video).toBeNull();
  });

  /** Prepends code to the workers of the pages opened until the test ends. */
  const patchWorker = (name: string, code: string): void => {
    lab.patches.set(`${name}.worker-`, code);
    onTestFinished(() => void lab.patches.delete(`${name}.worker-`));
  };

  it("says that the browser has no WebCodecs, and receives nothing", async () => {
    patchWorker("network", "delete globalThis.VideoDecoder;");
    await cinema.publish("codecs", cinema.mono.file);
    const page = await cinema.view(lab.link(cinema.port, "codecs"));
    await message(page, /no WebCodecs/);
    const s = await stats(page);
    expect([s.phase, s.video, s.bytes]).toEqual(["unplayable", null, 0]);
  });

  it("shows as many tiles as there are decoders, the ones in view", async () => {
    patchWorker("decode", `{
      const open = new Set();
      const Decoder = globalThis.VideoDecoder;
      globalThis.VideoDecoder = class extends Decoder {
        #fail;
        constructor(init) {
          super(init);
          this.#fail = init.error;
        }
        configure(config) {
          if (!open.has(this) && open.size === 4) {
            queueMicrotask(() => {
              if (this.state === "closed") return;
              super.close();
              this.#fail(new DOMException("all decoders are in use", "OperationError"));
            });
            this.decode = () => {};
            return;
          }
          open.add(this);
          super.configure(config);
        }
        close() {
          open.delete(this);
          super.close();
        }
      };
    }`);
    await cinema.publish("four", cinema.mono.file, "--grid", "8x4");
    const page = await cinema.watch("four");
    const shown = async () => (await video(page))!.tiles.flatMap((q, t) => (q >= 0 ? [t] : []));
    const ahead = await until("three tiles", async () => {
      const tiles = await shown();
      return tiles.length === 3 && (await video(page))!.viewport_quality > 0.2 ? tiles : undefined;
    });
    await turn(page, 180, 0);
    await until("three others behind", async () => {
      const tiles = await shown();
      const other = tiles.every((t) => !ahead.includes(t));
      return tiles.length === 3 && other && (await video(page))!.viewport_quality > 0.2;
    });
  });

  describe("of a recording", () => {
    let prepared: string;
    beforeAll(async () => {
      prepared = join(folder, "steps");
      const p = lab.program(
        "holocast",
        "prepare",
        steps(),
        prepared,
        "--grid",
        "4x2",
        "--qualities",
        "2",
        "--preset",
        "veryfast",
      );
      await until("the prepared film", async () => !p.running);
    });

    /** The second of the film whose grey is in the middle of the view. */
    const second = async (page: Page): Promise<number> => {
      const { width, height, rgba } = await canvasPicture(page);
      const shown = rgba[4 * ((height >> 1) * width + (width >> 1))]!;
      return (shown * (219 / 255) + 16 - grey(0)) / 25;
    };
    /** Seeks while paused, and waits until the position is shown. */
    const seek = async (page: Page, ms: number): Promise<void> => {
      await page.locator("#position").fill(`${ms}`);
      let since = 0;
      await until(`the picture at ${ms} ms`, async () => {
        const { playback } = await stats(page);
        const right = Math.abs((await second(page)) - Math.floor(ms / 1000)) < 0.5;
        if (playback!.position_ms !== ms || playback!.playing || playback!.waiting || !right) since = performance.now();
        return performance.now() - since > 700;
      });
    };

    it("can be paused and sought, with tiles", async () => {
      const p = lab.program("holocast", "replay", prepared, `moqt://127.0.0.1:${cinema.port}/past`, "--loop");
      open.push(p);
      const page = await cinema.watch("past");
      await until("the playback bar", () => page.locator("#playback").isVisible());
      const s = await stats(page);
      expect(s.playback).toMatchObject({ live: true, playing: true });
      expect(Math.abs(s.playback!.duration_ms - 1000 * GREYS)).toBeLessThan(200);
      await page.locator("button#play").click();
      await until("a pause", async () => !(await stats(page)).playback!.playing);
      for (const ms of [500, 4300, 2950, 0, 3050]) await seek(page, ms);
      await sharp(page);

      // A turn while paused fetches the tiles in the new view.
      await turn(page, 180, 0);
      await sharp(page);

      await page.locator("button#play").click();
      const before = (await video(page))!.pictures;
      await until("the end", async () => {
        const { playing, position_ms, duration_ms } = (await stats(page)).playback!;
        return !playing && position_ms === duration_ms;
      });
      await until("its last second", async () => Math.round(await second(page)) === GREYS - 1);
      expect((await video(page))!.pictures).toBeGreaterThan(before);
      expect((await video(page))!.bad).toBe(0);
      await page.locator("button#golive").click();
      const shared = (await video(page))!.pictures;
      await until(
        "the shared replay",
        async () => (await stats(page)).playback!.live && (await video(page))!.pictures > shared + 5,
      );
      await until("tiles of it", async () => (await video(page))!.viewport_quality > 0.45);
    });

    it("becomes sharp when paused right after opening, after a seek, and in mid-playback", async () => {
      open.push(lab.program("holocast", "replay", prepared, `moqt://127.0.0.1:${cinema.port}/early`, "--loop"));
      const page = await cinema.watch("early", "&rate=0.02"); // too low for good tiles
      await until("the playback bar", () => page.locator("#playback").isVisible());
      await page.locator("button#play").click();
      await until("a pause", async () => !(await stats(page)).playback!.playing);
      const best = () => until("the best tiles in view", async () => (await video(page))!.viewport_quality > 0.98);
      await best();
      for (const ms of [2900, 4900]) {
        await seek(page, ms);
        await best();
      }
      await turn(page, 180, 0);
      await best();
      await page.locator("button#play").click();
      await until("worse tiles", async () => (await video(page))!.viewport_quality < 0.9);
      await page.locator("button#play").click();
      await best();
    });

    it("shows its controls only while they are needed", async () => {
      open.push(lab.program("holocast", "replay", prepared, `moqt://127.0.0.1:${cinema.port}/bars`, "--loop"));
      const page = await cinema.watch("bars");
      await until("the playback bar", () => page.locator("#playback").isVisible());
      expect(await page.locator("#time").innerText()).toMatch(/ \/ 0:06$/);
      const hint = page.locator("#hint");
      expect(await hint.getAttribute("hidden")).toBeNull();
      const opacity = () => page.locator("#tools").evaluate((e) => getComputedStyle(e).opacity);
      await page.mouse.move(200, 50);
      await page.mouse.down();
      await page.mouse.up();
      expect(await hint.isHidden()).toBe(true);
      await until("hidden controls", async () => (await opacity()) === "0");
      await page.mouse.move(200, 50);
      await until("controls", async () => (await opacity()) === "1");
      await until("hidden controls again", async () => (await opacity()) === "0");
      await page.locator("button#play").click(); // moving the pointer shows the button
      await until("a pause", async () => !(await stats(page)).playback!.playing);
      await until("its controls", async () => (await opacity()) === "1");
    });

    it("continues when the shared replay loops", async () => {
      open.push(lab.program("holocast", "replay", prepared, `moqt://127.0.0.1:${cinema.port}/loop`, "--loop"));
      const page = await cinema.watch("loop");
      let last = 0;
      await until("the replay to loop", async () => {
        const { shown_ms } = (await video(page))!;
        const looped = shown_ms < last - 3000;
        last = shown_ms;
        return looped;
      });
      const before = (await video(page))!.pictures;
      await until("more pictures", async () => (await video(page))!.pictures > before + 15);
      await sharp(page);
    });

    it.each([
      ["live", false],
      ["at the viewer's own pace", true],
    ] as const)("plays sound in sync, %s", async (_, own) => {
      const session = own ? "heard" : "heard-live";
      if (own)
        open.push(lab.program("holocast", "replay", prepared, `moqt://127.0.0.1:${cinema.port}/${session}`, "--loop"));
      else await cinema.publish(session, join(folder, "steps.mp4"));
      const page = await cinema.watch(session, "", recordsChanges);
      const button = page.locator("button#sound");
      await until("the button", () => button.isVisible());
      expect((await stats(page)).sound).toMatchObject({ on: false, packets_played: 0 });
      if (own) await until("the playback bar", () => page.locator("#playback").isVisible());
      await button.press("Enter"); // click() waits for frames, which a busy machine may not draw
      if (own) await page.locator("#position").fill("0");
      await until("sound", async () => {
        // On a slow machine the recording may end first. Playback then starts from the beginning.
        if (own && !(await stats(page)).playback!.playing) await page.locator("button#play").click();
        return (await stats(page)).sound!.level > 0.1;
      });
      /**
       * Distances between the same changes in two lists. A busy machine drops late packets, and with them some changes.
       */
      const distances = (from: readonly number[], to: readonly number[]): number[] =>
        from.flatMap((t) => {
          const nearest = to.toSorted((a, b) => Math.abs(a - t) - Math.abs(b - t))[0];
          return nearest !== undefined && Math.abs(nearest - t) < 250 ? [Math.round(nearest - t)] : [];
        });
      const median = (list: number[]): number => list.toSorted((a, b) => a - b)[list.length >> 1]!;
      // After a pause of the machine, sound needs time to catch up, so the newest five changes count. In live sessions
      // the capture server stamps pictures and sound. The film's brightness and tone change together.
      let delay: number[] = [];
      let skew: number[] = [];
      try {
        await until("sound in sync", async () => {
          if (own && !(await stats(page)).playback!.playing) await page.locator("button#play").click();
          const { brightness, tone, heard } = await page.evaluate(() => window.changes!);
          [delay, skew] = [distances(tone, heard).slice(-5), distances(brightness, tone).slice(-5)];
          if (delay.length < 5 || skew.length < 5) return false;
          return Math.abs(median(delay)) < 100 && (!own || Math.abs(median(skew)) < 100);
        });
      } finally {
        console.log(JSON.stringify({ delay, skew, sound: (await stats(page)).sound }));
      }
      await button.press("Enter");
      await until("silence", async () => !(await stats(page)).sound!.on);
    });
  });

  /** Sources of a film that is encoded while it is published or beforehand. */
  const sources: Record<string, () => string> = {
    live: () => `equirect:${cinema.mono.file}`,
    prepared: () => {
      const tour = join(folder, "tour");
      lab.run(
        "holocast",
        "prepare",
        cinema.mono.file,
        tour,
        "--grid",
        "4x2",
        "--qualities",
        "2",
        "--preset",
        "ultrafast",
      );
      return `tiles:${tour}`;
    },
  };
  it.each(Object.keys(sources))("surrounds a point cloud, %s", async (kind) => {
    const p = lab.program(
      "capture-server",
      "--source",
      sources[kind]!(),
      "--grid",
      "4x2",
      "--qualities",
      "1",
      "--source",
      "synthetic",
      "--fps",
      "5",
      `moqt://127.0.0.1:${cinema.port}/both-${kind}`,
    );
    open.push(p);
    await p.says(/publishing/);
    const page = await cinema.watch(`both-${kind}`);
    expect((await stats(page)).playback).toBeNull(); // a camera cannot be paused
    const s = await shows(page, 3);
    expect(s.cameras).toBe(1);
    expect(s.points).toBeGreaterThan(1000);
    const before = s.video!.pictures;
    await until("more of both", async () => {
      const now = await stats(page);
      return now.frames > s.frames + 2 && now.video!.pictures > before + 5;
    });
    mkdirSync(images, { recursive: true });
    await page.screenshot({ path: `${images}/web-hologram-in-360.png` });
  });

  it("turns with a phone", async () => {
    await cinema.publish("phone", cinema.mono.file);
    const page = await cinema.watch("phone", "", "Object.defineProperty(navigator, 'maxTouchPoints', { value: 5 })");
    await page.locator("button#motion").click();
    await page.locator("button#motion[aria-pressed=true]").waitFor(); // it listens from now on
    // The phone is upright, then turns a quarter to the right, then points at the sky.
    const held = (alpha: number, beta: number) =>
      page.evaluate(([alpha, beta]) => {
        dispatchEvent(new DeviceOrientationEvent("deviceorientation", { alpha: alpha!, beta: beta!, gamma: 0 }));
        return [...window.holocast!.studio.gaze];
      }, [alpha, beta]);
    const near = (...v: number[]) => v.map((x) => expect.closeTo(x, 1));
    expect(await held(200, 90)).toEqual(near(0, 0, 1)); // the first event does not turn the view
    expect(await held(110, 90)).toEqual(near(1, 0, 0));
    expect((await held(110, 150))[1]).toBeGreaterThan(0.8);
  });

  it("turns with keys", async () => {
    await cinema.publish("keys", cinema.mono.file);
    const page = await cinema.watch("keys");
    await page.setViewportSize({ width: 576, height: 512 });
    const gaze = () => page.evaluate(() => [...window.holocast!.studio.gaze]);
    const before = await gaze();
    await page.keyboard.down("ArrowRight");
    await until("a turn to the right", async () => (await gaze())[0]! > before[0]! + 0.3);
    await page.keyboard.up("ArrowRight");
    const eye = await page.evaluate(() => window.holocast!.studio.view.eye);
    expect(eye.every((x) => Math.abs(x) < 0.1)).toBe(true); // keys do not walk
    const details = page.locator("#stats");
    expect(await details.isHidden()).toBe(true);
    await page.keyboard.press("h");
    await until("the details of video", async () => (await details.innerText()).includes("Sharp after a turn"));
    expect(await details.innerText()).not.toContain("Points");
    expect(await page.locator("button#walk").isHidden()).toBe(true);
    expect(await page.locator("button#motion").isHidden()).toBe(true);
    expect(await page.locator("button#light").isHidden()).toBe(true);
    expect(lab.errors).toEqual([]);
  });
});
