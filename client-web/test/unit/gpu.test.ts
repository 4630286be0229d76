import { describe, expect, it } from "vitest";
import { GpuQueue } from "../../src/scene/gpu.ts";

/**
 * A simulated GPU whose drawing time has a fixed part and a part proportional to the share of
 * points.
 */
class Gpu {
  now = 0;
  free = 0;
  readonly queue: GpuQueue;

  constructor(
    private readonly fixed: number,
    private readonly points: number,
  ) {
    const gl = {
      SIGNALED: 1,
      isContextLost: () => false,
      fenceSync: () => ({ at: this.free }),
      getSyncParameter: (sync: { at: number }) => (this.now >= sync.at ? 1 : 0),
      deleteSync: () => {},
      flush: () => {},
    };
    this.queue = new GpuQueue(gl as unknown as WebGL2RenderingContext, { slow: 250, quick: 100, coarsest: 64 });
  }

  /** Draws on every refresh of a display for `ms` and returns the age of each picture when it was completed. */
  run(ms: number): number[] {
    const ages: number[] = [];
    for (const end = this.now + ms; this.now < end; this.now += 16) {
      if (this.queue.busy(this.now)) continue;
      this.free = Math.max(this.free, this.now) + this.fixed + this.points / this.queue.stride;
      ages.push(this.free - this.now);
      this.queue.submitted(this.now);
    }
    return ages;
  }
}

describe("GpuQueue", () => {
  it("allows two pictures on a fast GPU", () => {
    const gpu = new Gpu(5, 15);
    expect(gpu.run(1000).length).toBeGreaterThan(45);
    expect(gpu.queue.stride).toBe(1);
  });
  it("allows one picture on a slow GPU", () => {
    const gpu = new Gpu(50, 150);
    const ages = gpu.run(10_000);
    expect(Math.max(...ages)).toBeLessThanOrEqual(400); // its own time and the previous one's
    expect(ages.length).toBeGreaterThan(10_000 / 202); // and the GPU stays busy
    expect(gpu.queue.stride).toBe(1);
  });
  it("draws fewer points on an overloaded GPU, and all of them afterwards", () => {
    const gpu = new Gpu(50, 1000);
    gpu.run(20_000);
    expect(gpu.queue.stride).toBeGreaterThan(1);
    expect(gpu.queue.took).toBeLessThan(320);
    const recovered = Object.assign(new Gpu(10, 20), { now: gpu.now });
    recovered.queue.stride = gpu.queue.stride;
    recovered.run(20_000);
    expect(recovered.queue.stride).toBe(1);
  });
  it("draws all points after a stall, though not quickly", () => {
    const gpu = new Gpu(120, 20);
    gpu.queue.stride = 16; // thinned out during the stall
    gpu.run(20_000);
    expect(gpu.queue.stride).toBe(1);
  });
  it("rarely tries to draw more points than the GPU can", () => {
    const gpu = new Gpu(50, 1000);
    gpu.run(120_000);
    const ages = gpu.run(60_000);
    expect(ages.filter((ms) => ms > 300).length).toBeLessThan(ages.length / 10);
  });
  it("keeps all points if fewer do not save time", () => {
    const gpu = new Gpu(600, 20);
    gpu.run(120_000);
    let coarse = 0;
    for (let i = 0; i < 60; i++) {
      gpu.run(1000);
      if (gpu.queue.stride > 1) coarse++;
    }
    expect(coarse).toBeLessThan(10);
  });
});
