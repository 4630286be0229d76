/** Tracks that a browser without H.264 skips. */
import { describe, expect, it } from "vitest";
import { Points } from "../../src/media/points/medium.ts";
import type { FromPoints } from "../../src/media/points/messages.ts";
import { parseCatalog } from "../../src/media/session/catalog.ts";
import type { Host } from "../../src/media/session/medium.ts";

const grid = { width: 4, height: 2, fx: 500, fy: 500, cx: 2, cy: 1, k: [0, 0, 0, 0, 0, 0], p: [0, 0] };
const pose = { r: [1, 0, 0, 0, 1, 0, 0, 0, 1], t: [0, 0, 0] };

const catalog = (tracks: readonly (readonly [quality: string, layout: string, maxPoints: number, bitrate: number])[]) =>
  parseCatalog(
    new TextEncoder().encode(
      JSON.stringify({
        version: "1",
        initDataList: [{ id: "camera", type: "inline", data: btoa(JSON.stringify({ grid, pose })) }],
        tracks: tracks.map(([quality, layout, maxPoints, bitrate]) => ({
          name: `points/0/${quality}`, packaging: "hcpf", isLive: true, initRef: "camera", width: 4, height: 2, bitrate,
          hcpf: { quality, layout, descriptions: 1, maxPoints },
        })),
      }),
    ),
  );

const all = [["low", "A", 2, 20e6], ["full", "A", 8, 80e6], ["high", "W", 8, 4e6]] as const;

describe("qualities of a browser", () => {
  async function open(h264: boolean, tracks: Parameters<typeof catalog>[0], quality: string) {
    const sent: FromPoints[] = [];
    let settled = 0;
    const host = { live: false, changed: () => {}, settle: () => void settled++ } as unknown as Host;
    const port = { postMessage: () => {} } as unknown as MessagePort;
    const points = new Points(host, [port], quality, Promise.resolve(h264), (m) => void sent.push(m));
    points.prepare(catalog(tracks))();
    await Promise.resolve();
    const qualities = sent.findLast((m) => m.type === "qualities");
    return { points, settled, names: qualities?.names, received: qualities?.received };
  }

  it("with H.264 include high, between full and low", async () =>
    expect(await open(true, all, "high")).toMatchObject({
      names: ["full", "high", "low"], received: ["high"], settled: 1, points: { unplayable: undefined, present: true },
    }));
  it("without H.264 exclude high", async () =>
    expect(await open(false, all, "high")).toMatchObject({
      names: ["full", "low"], received: ["full"], points: { unplayable: undefined, present: true },
    }));
  it("without H.264 are none if a session has only high", async () =>
    expect(await open(false, all.slice(2), "auto")).toMatchObject({
      names: [], points: { unplayable: expect.stringContaining("H.264"), present: false },
    }));
  it.each([[true], [false]])("are known at once without high: H.264 %s", async (h264) => {
    const { names, settled } = await open(h264, all.slice(0, 2), "auto");
    expect([names, settled]).toEqual([["full", "low"], 0]);
  });
});
