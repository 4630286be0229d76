/** Decoded 360° video on its way to the scene. */
import { expect, it } from "vitest";
import type { Sphere } from "../../src/media/tiles/track.ts";
import type { Studio } from "../../src/scene/studio.ts";
import { VideoView } from "../../src/ui/video.ts";

const sphere = {
  width: 64, height: 32, columns: 1, rows: 1, qualities: 2, framerate: 10, gop: 1000, latency: 0, tiles: [[]],
} as unknown as Sphere;

/** A view of one tile, paused at 100 ms, and the timestamps (ms) of uploaded and of closed pictures. */
function paused() {
  const uploaded: number[] = [];
  const closed: number[] = [];
  const scene = {
    tiles: 1,
    uploadTile: (_: number, f: VideoFrame) => uploaded.push(f.timestamp / 1000) > 0,
    show: () => {},
    shows: () => true,
  };
  const studio = { sphere: scene, setSphere: () => {}, gaze: [0, 0, 1], fieldOfView: [1, 1] } as unknown as Studio;
  const view = new VideoView(studio, () => {});
  view.fromNetwork({ type: "sphere", sphere });
  view.fromNetwork({ type: "due", shift: 0, still: 100 });
  const decode = (quality: number, ...at: number[]) => {
    for (const ms of at) {
      const frame = { timestamp: 1000 * ms, close: () => void closed.push(ms) } as unknown as VideoFrame;
      view.fromVideo({ type: "picture", run: 0, tile: 0, quality, timestamp: frame.timestamp, frame });
    }
  };
  return { view, decode, uploaded, closed };
}

it("shows a better quality decoded while later pictures wait", () => {
  const { view, decode, uploaded, closed } = paused();
  decode(0, 0, 100, 200, 300);
  view.upload(1000);
  expect(view.stats()!.tiles).toEqual([0]);
  decode(1, 0, 100, 200, 300);
  view.upload(2000);
  expect(view.stats()!.tiles).toEqual([1]);
  expect(uploaded).toEqual([100, 100]);

  view.fromNetwork({ type: "due", shift: 0, still: 300 });
  view.upload(3000);
  expect(view.stats()!.tiles).toEqual([1]);
  expect(uploaded).toEqual([100, 100, 300]);
  expect(closed.length).toBe(8);
});

it("shows a better quality when paused just before the picture shown", () => {
  const { view, decode, uploaded } = paused();
  view.fromNetwork({ type: "due", shift: 0, still: undefined });
  decode(0, 0, 100, 200, 300);
  view.upload(201);
  view.fromNetwork({ type: "due", shift: 0, still: 199 });
  decode(1, 0, 100, 200, 300);
  view.upload(1000);
  expect(view.stats()!.tiles).toEqual([1]);
  expect(uploaded).toEqual([200, 100]);
});

it("shows the next round of a looping replay after the last pictures of this one", () => {
  const { view, decode, uploaded } = paused();
  view.fromNetwork({ type: "due", shift: 0, still: 9100 });
  decode(1, 9000, 9100, 100);
  view.upload(1000);
  expect(uploaded).toEqual([100]);
});
