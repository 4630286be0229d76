/** Tracks whose groups are chains: each object needs all earlier ones of its group (layout W). */
import type { Assembled } from "./assembler.ts";
import { isKey } from "./video.ts";

type Objects = Uint8Array<ArrayBuffer>[];

/** Maximum number of objects that wait for an earlier one, or for the decoder. */
const MAX_WAITING = 512;
/** A group this far below the newest comes from a restarted publisher. */
const RESTART = 1000n;

/** Delivers a group's objects in order, from its first one on, until a later group begins. */
export class GroupAssembler {
  /** The newest group with any object. */
  newest = -1n;
  /** Group being delivered, and the ID of its next object. */
  #group = -1n;
  #next = 0;
  /** Objects that wait for an earlier one, by group and ID. */
  readonly #waiting = new Map<bigint, Map<number, Uint8Array<ArrayBuffer>>>();
  #stalled: string | undefined;

  /** `broken` reports that the rest of the newest group is lost. */
  constructor(
    private readonly ready: (object: Assembled) => void,
    private readonly broken: () => void,
  ) {}

  /** False once a later group has begun. */
  wants(group: bigint): boolean {
    return group >= this.#group || group + RESTART < this.#group;
  }

  add(group: bigint, _description: number, object: Uint8Array<ArrayBuffer>, id = 0): void {
    if (!this.wants(group) || (group === this.#group && id < this.#next)) return;
    if (group < this.#group) {
      this.#waiting.clear();
      this.newest = this.#group = -1n;
    }
    if (group > this.newest) this.newest = group;
    let held = this.#waiting.get(group);
    if (!held) this.#waiting.set(group, (held = new Map()));
    held.set(id, object);
    if (group > this.#group && id === 0) {
      this.#group = group;
      this.#next = 0;
      for (const g of [...this.#waiting.keys()]) if (g < group) this.#waiting.delete(g);
    }
    if (group === this.#group) this.#deliver(held);
    else if ([...this.#waiting.values()].reduce((n, h) => n + h.size, 0) > MAX_WAITING) this.#waiting.clear();
  }

  #deliver(held: Map<number, Uint8Array<ArrayBuffer>>): void {
    const group = this.#group;
    for (let object; (object = held.get(this.#next)); ) {
      held.delete(this.#next++);
      this.ready({ group, objects: [object] });
    }
    if (held.size === 0) this.#waiting.delete(group);
  }

  /** The group's stream was reset. */
  lost(group: bigint): void {
    if (group >= this.newest) this.broken();
  }

  /** Reports a broken group if the same objects have been waiting since the last call. Call every 250 ms. */
  check(): void {
    const waiting = this.#waiting.size > 0 ? `${this.#group} ${this.#next}` : undefined;
    if (waiting !== undefined && waiting === this.#stalled) this.broken();
    this.#stalled = waiting;
  }
}

/** The objects to decode next: a group from its first object on, or the successors of the objects last taken. */
export class Chain {
  #objects: Objects = [];
  #broken = false;

  get length(): number {
    return this.#objects.length;
  }

  /** Appends an object. A key frame replaces all earlier ones. Returns the number of objects dropped. */
  add(object: Uint8Array<ArrayBuffer>): number {
    if (isKey(object)) {
      const dropped = this.#objects.length;
      this.#objects = [object];
      this.#broken = false;
      return dropped;
    }
    if (this.#broken) return 1;
    if (this.#objects.length === MAX_WAITING) return this.break() + 1;
    this.#objects.push(object);
    return 0;
  }

  take(): Objects {
    const objects = this.#objects;
    this.#objects = [];
    return objects;
  }

  /** Refuses objects until the next key frame. Returns the number of objects dropped. */
  break(): number {
    this.#broken = true;
    return this.take().length;
  }
}
