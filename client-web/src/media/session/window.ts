/** Type of the property with an object's recorded group, where a replay sends it in another. */
export const ORIGINAL_GROUP = 0x68636772;

/** Number of groups remembered, and exclusive upper bound of object IDs remembered one by one. */
const GROUPS = 512;
const MAX_IDS = 65536n;

interface Seen {
  readonly group: bigint;
  readonly ids: Set<number>;
  /** One above the largest ID of at least MAX_IDS; 0 = none. */
  above: bigint;
}

/** Remembers the locations of the newest groups, as internal/secureobjects does. */
export class Window {
  readonly #groups = new Map<number, Seen>();
  #newest: bigint | undefined;

  /** Adds a location; returns false if it was added before or is too old to know. */
  add(group: bigint, id: bigint): boolean {
    this.#newest ??= group;
    if (group < this.#newest && this.#newest - group >= BigInt(GROUPS)) return false;
    if (group > this.#newest) this.#newest = group;
    const slot = Number(group % BigInt(GROUPS));
    let g = this.#groups.get(slot);
    if (g?.group !== group) this.#groups.set(slot, (g = { group, ids: new Set(), above: 0n }));
    if (id >= MAX_IDS) {
      if (id < g.above) return false;
      g.above = id + 1n;
      return true;
    }
    const n = Number(id);
    if (g.ids.has(n)) return false;
    g.ids.add(n);
    return true;
  }
}
