/** Tests encryption with the vectors of internal/secureobjects. */
import { describe, expect, it } from "vitest";
import { Reader } from "../../src/moqt/bytes.ts";
import { readProperties, type Properties, type TrackName } from "../../src/moqt/message.ts";
import type { Place } from "../../src/moqt/opener.ts";
import { context, derive, Encryption, fullTrackName, parseKeys } from "../../src/media/session/encryption.ts";
import { Window } from "../../src/media/session/window.ts";
import { withoutKeys } from "../../src/ui/link.ts";
import { hex, load, objects, unhex, type SealedVector } from "./sealed.ts";

interface Vectors {
  readonly names: readonly { readonly namespace: string[]; readonly name: string; readonly bytes: string }[];
  readonly keys: readonly {
    readonly secret: string;
    readonly namespace: string[];
    readonly name: string;
    readonly keyId: string;
    readonly key: string;
    readonly salt: string;
  }[];
  readonly contexts: readonly {
    readonly salt: string;
    readonly group: string;
    readonly object: string;
    readonly priority: number;
    readonly immutable: string;
    readonly nonce: string;
    readonly aad: string;
  }[];
}

const properties = (s: string): Properties => readProperties(new Reader(unhex(s)), false);
const place = (v: SealedVector): Place => ({ group: BigInt(v.group), id: BigInt(v.object), priority: v.priority });

function viewer(v: SealedVector, keys = v.keys): { e: Encryption; track: TrackName; why: string[] } {
  const why: string[] = [];
  return {
    e: new Encryption(v.namespace, parseKeys(keys), (s) => void why.push(s)),
    track: { namespace: v.namespace, name: v.name },
    why,
  };
}

describe("the draft's vectors", () => {
  const v = load<Vectors>("vectors.json");

  it("serializes names", () => {
    for (const x of v.names) expect(hex(fullTrackName(x))).toBe(x.bytes);
  });

  it("derives keys and salts", async () => {
    for (const x of v.keys) {
      const { key, salt } = await derive(unhex(x.secret), fullTrackName(x), BigInt(x.keyId));
      expect(hex(salt)).toBe(x.salt);
      expect(key.algorithm).toMatchObject({ name: "AES-GCM", length: 128 });
    }
  });

  it("forms nonces and additional data", () => {
    for (const x of v.contexts) {
      const at = { group: BigInt(x.group), id: BigInt(x.object), priority: x.priority };
      const { nonce, aad } = context(unhex(x.salt), at, unhex(x.immutable));
      expect([hex(nonce), hex(aad)]).toEqual([x.nonce, x.aad]);
    }
  });
});

describe("objects", () => {
  it.each(objects)("opens %#", async (v) => {
    const { e, track } = viewer(v);
    const o = await e
      .openTrack(track, Promise.resolve({}))!
      .open(place(v), properties(v.sealedProperties), unhex(v.sealed));
    expect(hex(o!.payload)).toBe(v.payload);
    expect(o!.properties).toEqual(properties(v.properties));
    expect(e.counters.opened).toBe(1);
  });

  it("refuses and counts changed, moved and repeated objects", async () => {
    const v = objects[0]!;
    const at = place(v);
    const sealed = unhex(v.sealed);
    const flipped = sealed.map((b, i) => (i === 2 ? b ^ 1 : b));
    const p = properties(v.sealedProperties);
    const { e, track } = viewer(v);
    const t = e.openTrack(track, Promise.resolve({}))!;
    const other = e.openTrack({ ...track, name: "points/1/full" }, Promise.resolve({}))!;
    expect(await t.open(at, p, flipped)).toBeUndefined();
    expect(await t.open({ ...at, group: at.group + 1n }, p, sealed.slice())).toBeUndefined();
    expect(await t.open({ ...at, id: at.id + 1n }, p, sealed.slice())).toBeUndefined();
    expect(await t.open({ ...at, priority: at.priority + 1 }, p, sealed.slice())).toBeUndefined();
    expect(await other.open(at, p, sealed.slice())).toBeUndefined();
    expect(await t.open(at, {}, sealed.slice())).toBeUndefined();
    expect(await t.open(at, p, sealed.slice())).toBeDefined();
    expect(await t.open(at, p, sealed.slice())).toBeUndefined();
    expect(e.counters).toEqual({
      opened: 1,
      refused: { unencrypted: 1, "unknown key": 0, forged: 5, replayed: 1, malformed: 0 },
    });
    expect(e.openTrack({ namespace: [".relay"], name: "clock" }, Promise.resolve({}))).toBeUndefined();
  });

  it("counts objects of unknown keys", async () => {
    const v = objects[1]!;
    const { e, track } = viewer(v, v.keys.split(",")[0]);
    await e.openTrack(track, Promise.resolve({}))!.open(place(v), properties(v.sealedProperties), unhex(v.sealed));
    expect(e.counters.refused["unknown key"]).toBe(1);
  });

  it("opens a replay's objects in other groups, but not a live session's", async () => {
    const v = objects[0]!;
    const moved = { ...place(v), group: 9n };
    const p = properties(v.sealedProperties);
    p.other!.set(0x68636772, BigInt(v.group));
    const { e, track } = viewer(v);
    const live = e.openTrack(track, Promise.resolve({}))!;
    expect(await live.open(moved, p, unhex(v.sealed))).toBeUndefined();
    const replay = e.openTrack(track, Promise.resolve({ other: new Map([[0x68637270, 1n]]) }))!;
    expect(hex((await replay.open(moved, p, unhex(v.sealed)))!.payload)).toBe(v.payload);
  });
});

it("says why a catalog cannot be opened", async () => {
  const { e, track, why } = viewer(objects[0]!);
  const plain = new TextEncoder().encode('{"version":"draft-01","tracks":[]}');
  const t = e.openTrack({ ...track, name: "catalog" }, Promise.resolve({}))!;
  expect(await t.open({ group: 1n, id: 0n, priority: 32 }, {}, plain)).toBeUndefined();
  expect(why.join()).toMatch(/not encrypted/);
});

it.each(["", "1", "0.AAECAwQFBgcICQoLDA0ODw", "1.AAEC", "1.!!!!", "16777216.AAECAwQFBgcICQoLDA0ODw"])(
  "refuses the keys %j",
  (text) => expect(() => parseKeys(text)).toThrow(/damaged/),
);

it("forgets old locations as seen", () => {
  const w = new Window();
  expect([w.add(600n, 1n), w.add(600n, 1n), w.add(89n, 0n), w.add(88n, 0n), w.add(600n, 70000n), w.add(600n, 69999n)])
    .toEqual([true, false, true, false, true, false]);
});

it("removes keys, and only them, from addresses", () => {
  expect(withoutKeys("https://x/?session=a#token=t&e2e=1.s")).toBe("https://x/?session=a#token=t");
  expect(withoutKeys("https://x/?session=a#e2e=1.s")).toBe("https://x/?session=a");
  expect(withoutKeys("https://x/?session=a#token=t")).toBe("https://x/?session=a#token=t");
});
