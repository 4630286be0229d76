import { expect, it } from "vitest";
import { Step } from "../../src/media/points/step.ts";

const cameras = [0, 1];
const frame = (camera: number, captured: number) => ({ camera, captured });

/** A step that has shown both cameras' frames of time 0. */
function started(): Step {
  const s = new Step();
  for (const camera of cameras) s.shown(frame(camera, 0));
  return s;
}

it("shows a single camera at once", () => {
  expect(new Step().ready([frame(0, 33)], [0], 100, 16)).toBe(true);
});

it("shows the first frame of any camera at once", () => {
  expect(new Step().ready([frame(0, 33)], cameras, 100, 16)).toBe(true);
});

it("waits for the other camera's frame", () => {
  const s = started();
  expect(s.ready([frame(0, 33)], cameras, 100, 16)).toBe(false);
  expect(s.ready([frame(0, 33), frame(1, 34)], cameras, 110, 16)).toBe(true);
});

it("waits for a bounded time", () => {
  const s = started();
  expect(s.ready([frame(0, 33)], cameras, 100, 16)).toBe(false);
  expect(s.ready([frame(0, 33)], cameras, 139, 16)).toBe(false);
  expect(s.ready([frame(0, 33)], cameras, 140, 16)).toBe(true);
});

it("waits longer on a slow renderer", () => {
  const s = started();
  expect(s.ready([frame(0, 33)], cameras, 100, 150)).toBe(false);
  expect(s.ready([frame(0, 33)], cameras, 249, 150)).toBe(false);
  expect(s.ready([frame(0, 33)], cameras, 250, 150)).toBe(true);
});

it("waits less often after a wait that timed out", () => {
  const s = started();
  let now = 100;
  let captured = 0;
  const waits = () => {
    captured += 33;
    s.shown(frame(1, captured - 33)); // always late
    const waited = !s.ready([frame(0, captured)], cameras, now, 16);
    if (waited) expect(s.ready([frame(0, captured)], cameras, (now += 40), 16)).toBe(true);
    s.shown(frame(0, captured));
    now += 33;
    return waited;
  };
  const pattern = Array.from({ length: 12 }, waits);
  expect(pattern).toEqual([1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0].map(Boolean));
});

it("does not wait for a silent camera, or one that jumped back", () => {
  const s = started();
  expect(s.ready([frame(0, 1500)], cameras, 100, 16)).toBe(true);
  s.shown(frame(0, 1500));
  s.shown(frame(1, 1500));
  expect(s.ready([frame(0, 10)], cameras, 200, 16)).toBe(true); // a replay starts again
});

it("shows nothing without frames", () => {
  expect(started().ready([], cameras, 100, 16)).toBe(false);
});
