import { describe, expect, it } from "vitest";
import { thin } from "../../src/scene/points.ts";

describe("thin", () => {
  const width = 64;
  const height = 32;
  const frame = () => {
    const words = new Uint32Array(2 * width * height);
    for (let y = 0, i = 0; y < height; y++)
      for (let x = 0; x < width; x++) {
        words[i++] = (x | (y << 12) | (200 << 24)) >>> 0;
        words[i++] = 1000 + x + y;
      }
    return words;
  };

  it.each([2, 4, 8, 16])("keeps every n-th row and column at a stride of %d", (stride) => {
    const words = frame();
    const n = thin(words, width * height, stride);
    expect(n).toBe((width * height) / stride);
    const seen = new Map<number, Set<number>>();
    for (let i = 0; i < 2 * n; i += 2) {
      const [x, y] = [words[i]! & 0xfff, (words[i]! >> 12) & 0xfff];
      expect(words[i + 1]).toBe(1000 + x + y);
      seen.set(y, (seen.get(y) ?? new Set()).add(x));
    }
    const [row] = seen.values();
    expect(seen.size * row!.size).toBe(n);
    expect(Math.max(height / seen.size, width / row!.size)).toBeLessThanOrEqual(4); // a surface closes such gaps
  });
});
