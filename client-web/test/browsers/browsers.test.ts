/** The viewer over TCP, and over QUIC where it is used, in Firefox and in WebKitGTK. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Stats } from "../../src/ui/stats.ts";
import { Cinema } from "../e2e/cinema.ts";
import { reliable, small } from "../e2e/fixture.ts";
import { freePort, until } from "../e2e/lab.ts";
import { browsers, open, type Driver } from "./driver.ts";

const cinema = new Cinema();
const { lab } = cinema;

describe.each(["Firefox", "WebKitGTK"] as const)("%s", (browser) => {
  describe.runIf(browsers[browser])("installed", () => {
    let driver: Driver;
    beforeAll(async () => {
      driver = await open(browser);
      console.log(driver.name);
    });
    afterAll(() => driver?.close());

    const stats = async (): Promise<Stats | undefined> =>
      (await driver.run("return window.holocast?.stats()")) as Stats | undefined;
    /** Waits until the statistics fulfil a condition. */
    const once = (what: string, f: (s: Stats) => boolean): Promise<Stats> => {
      let s: Stats | undefined;
      return until(what, async () => ((s = await stats()) && f(s) ? s : undefined)).catch(async (e: unknown) => {
        const text = await driver.run("return document.body.innerText");
        throw new Error(`${String(e)}; ${JSON.stringify(s)}; ${String(text)}`);
      });
    };
    const shows = (n: number): Promise<Stats> => once(`${n} frames`, (s) => s.frames >= n);
    /** Opens the viewer, over TCP unless the link says otherwise. */
    const view = (session: string, port = cinema.port, extra = "&transport=tcp"): Promise<void> =>
      driver.navigate(lab.link(port, session, extra));

    it("shows points over the transport that it chooses", async () => {
      await cinema.publisher("auto", ...small, ...reliable);
      await view("auto", cinema.port, "&transport=auto");
      const s = await shows(20);
      console.log(`transport ${s.transport}, frame delay ${JSON.stringify(s.frame_delay_ms)}`);
      if (browser === "WebKitGTK") expect(s.transport).toBe("tcp");
    });

    it.each([
      ["in four descriptions", "--descriptions", "4"],
      ["in datagrams", "--layout", "a", "--datagrams", "0"],
    ])("shows points %s, over TCP", async (name, ...args) => {
      await cinema.publisher(name, ...small, ...reliable, ...args);
      await view(name);
      const s = await shows(20);
      expect([s.transport, s.streams_malformed]).toEqual(["tcp", 0]);
    });

    // Without a sound card, Firefox plays nothing.
    it.runIf(browser === "WebKitGTK")("plays sound over TCP", async () => {
      await cinema.publisher("sound", ...small, ...reliable, "--sound", "stream");
      await view("sound");
      await shows(3);
      await driver.press("m");
      await once("sound", (s) => (s.sound?.packets_played ?? 0) > 50);
    });

    it("shows 360° video over TCP", async () => {
      await cinema.publish("cinema", cinema.mono.file);
      await view("cinema");
      const s = await once("sharp video", (s) => (s.video?.viewport_quality ?? 0) > 0.45);
      expect([s.transport, s.video?.bad]).toEqual(["tcp", 0]);
    });

    it("seeks in a replay over TCP", async () => {
      const size = ["--width", "276", "--height", "248", "--fps", "10", "--frames", "60"];
      cinema.open.push(lab.replay(cinema.port, "again", lab.recording(`${browser}.mcap`, ...size)));
      await view("again");
      await shows(3);
      await once("the playback bar", (s) => s.playback !== null);
      await driver.run(`
        const position = document.querySelector("#position");
        position.value = "3000";
        position.dispatchEvent(new Event("input", { bubbles: true }));
        position.dispatchEvent(new Event("change", { bubbles: true }));`);
      await once(
        "the position",
        ({ playback: p }) => p?.live === false && !p.waiting && p.position_ms >= 3000,
      );
    });

    it("returns after a restart of the relay over TCP", async () => {
      const port = await freePort();
      const relay = await lab.relay(port);
      cinema.open.push(await lab.publisher(port, "restart", ...small, ...reliable));
      await view("restart", port);
      const before = await shows(3);
      await relay.stop();
      cinema.open.push(await lab.relay(port)); // the publisher connects again, too
      const s = await once("frames again", (s) => s.reconnects > 0 && s.frames > before.frames + 3);
      expect(s.transport).toBe("tcp");
    });
  });
});
