/** Places the tiles' pictures in one texture, or some of them if the GPU's textures are too small for all. */
import type { Grid } from "../media/tiles/sphere.ts";

/** A texture divided into slots of equal size, one per tile. With two eyes, the left eye's picture is on top. */
export class Slots {
  /** Size of a slot, pixels. */
  readonly width: number;
  readonly height: number;
  readonly columns: number;
  readonly rows: number;
  /** Slot of each tile, least recently used first. */
  readonly #slots = new Map<number, number>();

  /** `maxSize` is the GPU's limit on the edges of a texture, in pixels. */
  constructor(readonly grid: Grid, eyes: number, maxSize: number) {
    const sizes = Array.from({ length: grid.tiles }, (_, t) => grid.rect(t));
    this.width = Math.max(...sizes.map((r) => r.width));
    this.height = eyes * Math.max(...sizes.map((r) => r.height));
    const columns = Math.min(grid.columns, Math.floor(maxSize / this.width));
    this.rows = columns === 0 ? 0 : Math.min(Math.floor(maxSize / this.height), Math.ceil(grid.tiles / columns));
    this.columns = this.rows === 0 ? 0 : columns;
  }

  /** Number of tiles that fit. */
  get count(): number {
    return Math.min(this.grid.tiles, this.columns * this.rows);
  }

  /** Returns a tile's slot, or −1 if it has none. */
  of(tile: number): number {
    return this.#slots.get(tile) ?? -1;
  }

  /**
   * Returns a tile's slot for its next picture, taken from a hidden tile if necessary; −1 if all slots hold shown
   * tiles.
   */
  take(tile: number, shown: (tile: number) => boolean): number {
    let slot = this.#slots.get(tile);
    if (slot === undefined && this.#slots.size < this.count) slot = this.#slots.size;
    if (slot === undefined) {
      for (const [other, s] of this.#slots) {
        if (shown(other)) continue;
        this.#slots.delete(other);
        slot = s;
        break;
      }
    }
    if (slot === undefined) return -1;
    this.#slots.delete(tile); // becomes the most recently used
    this.#slots.set(tile, slot);
    return slot;
  }
}
