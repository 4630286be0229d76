import type { VideoStats } from "../video.ts";

/** In CSS pixels, almost the width of the panel. */
const WIDTH = 256;

/** A map of the sphere's tiles, coloured by displayed quality. */
export class TileMap {
  #drawn = "";

  constructor(private readonly canvas: HTMLCanvasElement) {}

  show(v: VideoStats | null, best: number): void {
    const tiled = v !== null && v.columns > 0;
    this.canvas.parentElement!.hidden = !tiled;
    if (!tiled) return;
    const key = JSON.stringify([v.columns, v.rows, v.tiles, best]);
    if (key === this.#drawn) return;
    this.#drawn = key;
    const edge = Math.max(2, Math.floor(WIDTH / v.columns));
    Object.assign(this.canvas, { width: edge * v.columns, height: Math.max(2, edge >> 1) * v.rows });
    const g = this.canvas.getContext("2d");
    if (!g) return;
    const [w, h] = [edge, Math.max(2, edge >> 1)];
    v.tiles.forEach((quality, t) => {
      g.fillStyle = colour(quality, best);
      g.fillRect((t % v.columns) * w, Math.floor(t / v.columns) * h, w - 1, h - 1);
    });
    const counts = v.tiles.filter((q) => q >= 0).length;
    this.canvas.setAttribute("aria-label", `${counts} of ${v.tiles.length} tiles`);
  }
}

/** Grey for the base sphere, blue to green with rising tile quality. */
function colour(quality: number, best: number): string {
  if (quality < 0) return "rgb(128 128 128 / 35%)";
  const share = best === 0 ? 1 : quality / best;
  return `hsl(${220 - 90 * share} 65% 50%)`;
}
