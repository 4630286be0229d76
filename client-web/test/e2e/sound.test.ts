/** Controls, place and errors of sound. The test publisher beeps every second. */
import { beforeAll, describe, expect, it } from "vitest";
import { reportDecoded } from "./ear.ts";
import { Fixture, notice, reliable, small } from "./fixture.ts";
import { hear, median, records } from "./hearing.ts";
import { shows, stats, until } from "./lab.ts";

const fixture = new Fixture();
const { lab } = fixture;
beforeAll(() => reportDecoded(lab));

describe("sound", () => {
  it("says that it is off, and can be muted and turned on again", async () => {
    await fixture.publisher("muted", ...small, ...reliable, "--sound", "stream");
    const page = await fixture.view(lab.link(fixture.port, "muted"), records);
    await notice(page, /Select Sound/);
    await page.locator("button#sound").click();
    const beeps = () => page.evaluate(() => window.seen!.heard.length);
    await until("a beep", async () => (await beeps()) > 0);
    expect(await page.locator("input#volume").isVisible()).toBe(true);
    await page.locator("button#sound").dispatchEvent("click");
    const received = await until("no more packets", async () => {
      const before = (await stats(page)).sound!.packets_received;
      await shows(page, (await stats(page)).frames + 3);
      const s = (await stats(page)).sound!;
      return !s.on && s.packets_received === before && before;
    });
    expect(await page.locator("input#volume").isVisible()).toBe(false);
    const before = await beeps();
    await page.locator("button#sound").dispatchEvent("click");
    await until("another beep", async () => (await beeps()) > before);
    await until("more packets", async () => (await stats(page)).sound!.packets_received > received);
  });

  it("comes from its place", async () => {
    await fixture.publisher("place", ...small, ...reliable, "--sound", "stream");
    const page = await hear(fixture, "place");
    /** Waits until the left ear's loudness divided by the right's is as wanted. The microphone is at x = 1 m. */
    const balance = async (what: string, z: number, wanted: (ratio: number) => boolean): Promise<void> => {
      await page.evaluate((z) => window.holocast!.studio.lookAt([0, 1.2, z], [0, 1.2, 0]), z);
      const ratios: number[] = [];
      await until(what, async () => {
        const [left, right] = await page.evaluate(() => window.ear!.loudness());
        if (Math.max(left, right) > 0.005) ratios.push(left / right);
        return ratios.length >= 10 && wanted(median(ratios.slice(-10)));
      });
    };
    await balance("a louder right ear", 2, (ratio) => ratio < 0.8);
    await balance("a louder left ear", -2, (ratio) => ratio > 1.25);
  });

  it("refuses bad packets with a sentence, and shows points", async () => {
    await fixture.publisher("flood", ...small, ...reliable, "--sound", "datagram", "--flood", "5");
    const page = await hear(fixture, "flood");
    await until("refused packets", async () => (await stats(page)).sound!.packets_refused > 300);
    await shows(page, (await stats(page)).frames + 5);
    await until("the sentence", async () =>
      /\d+ packets of track audio\/0 were refused, the last one because/.test(await page.locator("#stats").innerText()),
    );
    expect(lab.errors).toEqual([]);
  });
});
