/**
 * Opens the objects of encrypted sessions (docs/spec/encryption.md, draft-ietf-moq-secure-objects-01)
 * with WebCrypto. internal/secureobjects is the reference; both share its test vectors.
 */
import { Reader, Writer } from "../../moqt/bytes.ts";
import { readProperties, type Properties, type TrackName } from "../../moqt/message.ts";
import type { ObjectOpener, OpenedObject, Opener, Place } from "../../moqt/opener.ts";
import { ORIGINAL_GROUP, Window } from "./window.ts";

/** Why objects are refused, in reports. */
export type Refusal = "unencrypted" | "unknown key" | "forged" | "replayed" | "malformed";

export interface EncryptionCounters {
  opened: number;
  readonly refused: Record<Refusal, number>;
}

const SUITE = 0x0004; // AES_128_GCM_SHA256_128
const KEY_ID = 0x02n;
/** Bits of a Key ID below the ID of the key. */
const RUN_BITS = 24n;
const MAX_KEY_ID = 0xffffff;
/** Property type that marks the tracks of a replay (docs/spec/replay.md). */
const REPLAYED = 0x68637270;
const ON_DEMAND = "recording";
const MAX_DERIVED = 2048;

export const NO_KEY =
  "The session is encrypted, and the link has no key. Open the link that you were given; it ends with #e2e=…";

/** Secrets by the ID of the key. */
export type Keys = ReadonlyMap<number, Uint8Array<ArrayBuffer>>;

/** Parses keys in the form of links: ID.SECRET, comma-separated, secrets in base64url. */
export function parseKeys(text: string): Keys {
  const keys = new Map<number, Uint8Array<ArrayBuffer>>();
  for (const part of text.split(",")) {
    const [id, secret] = part.trim().split(".");
    const n = Number(id);
    let bytes: Uint8Array<ArrayBuffer> | undefined;
    try {
      bytes = Uint8Array.from(atob((secret ?? "").replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
    } catch {
      // Not base64.
    }
    if (!/^[0-9]+$/.test(id ?? "") || n < 1 || n > MAX_KEY_ID || !bytes || bytes.length < 16 || bytes.length > 64)
      throw new Error("The key in the link is damaged. Copy the whole link.");
    keys.set(n, bytes);
  }
  return keys;
}

/** A key and salt, derived for one track and Key ID (§3.7). */
interface Derived {
  readonly key: CryptoKey;
  readonly salt: Uint8Array;
}

class Refused extends Error {
  constructor(
    readonly reason: Refusal,
    readonly keyId = 0n,
  ) {
    super(reason);
  }
}

/** A catalog's field "hcsealed". */
interface SealedCatalog {
  readonly keyId: number;
  readonly namespace: readonly string[];
  readonly group: number;
  readonly object: number;
  readonly priority: number;
  readonly data: string;
}

export class Encryption implements Opener {
  readonly counters: EncryptionCounters = {
    opened: 0,
    refused: { unencrypted: 0, "unknown key": 0, forged: 0, replayed: 0, malformed: 0 },
  };
  readonly #derived = new Map<string, Promise<Derived>>();
  /** The namespace that a replay was encrypted for. */
  #recorded: readonly string[] | undefined;
  #readable = false;
  /** Why the newest object could not be opened, if its key is missing. */
  missing: string | undefined;

  constructor(
    private readonly namespace: readonly string[],
    private readonly keys: Keys,
    /** Called with a sentence for users if the session cannot be read. */
    private readonly failed: (why: string) => void,
  ) {}

  openTrack(track: TrackName, properties: Promise<Properties>): ObjectOpener | undefined {
    const { namespace } = track;
    if (!this.namespace.every((field, i) => namespace[i] === field)) return undefined;
    const past = namespace.slice(this.namespace.length).includes(ON_DEMAND);
    const replayed = async (): Promise<boolean> => {
      const v = past ? 1n : (await properties).other?.get(REPLAYED);
      return v !== undefined && v !== 0n;
    };
    const window = new Window();
    const catalog = track.name === "catalog";
    const open = async (at: Place, p: Properties, payload: Uint8Array<ArrayBuffer>): Promise<OpenedObject> => {
      const opened = catalog
        ? { properties: {}, payload: await this.#openCatalog(at, await replayed(), payload) }
        : await this.#open(track, at, replayed, p, payload);
      if (!window.add(at.group, at.id)) throw new Refused("replayed");
      return opened;
    };
    return {
      open: async (at, p, payload) => {
        try {
          const opened = await open(at, p, payload);
          this.counters.opened++;
          this.missing = undefined;
          this.#readable ||= catalog;
          return opened;
        } catch (e) {
          const refused = e instanceof Refused ? e : new Refused("malformed");
          this.counters.refused[refused.reason]++;
          if (refused.reason === "unknown key") this.missing = sentence(refused);
          if (catalog && !this.#readable && refused.reason !== "replayed") this.failed(sentence(refused));
          return undefined;
        }
      },
    };
  }

  async #open(
    track: TrackName,
    at: Place,
    replayed: () => Promise<boolean>,
    p: Properties,
    payload: Uint8Array<ArrayBuffer>,
  ): Promise<OpenedObject> {
    const immutable = p.immutable;
    const keyId = immutable && keyIdIn(immutable);
    if (!immutable || keyId === undefined) throw new Refused("unencrypted");
    const original = p.other?.get(ORIGINAL_GROUP);
    const place = typeof original === "bigint" && (await replayed()) ? { ...at, group: original } : at;
    return this.#decrypt(this.#sealedName(track), keyId, place, immutable, payload);
  }

  /** The name that a track was encrypted for, which differs in replays. */
  #sealedName(track: TrackName): TrackName {
    if (!this.#recorded) return track;
    const rest = track.namespace.slice(this.namespace.length);
    return { namespace: [...this.#recorded, ...(rest[0] === ON_DEMAND ? rest.slice(1) : rest)], name: track.name };
  }

  async #decrypt(
    track: TrackName,
    keyId: bigint,
    at: Place,
    immutable: Uint8Array,
    payload: Uint8Array<ArrayBuffer>,
  ): Promise<OpenedObject> {
    if (at.id > 0xffffffffn) throw new Refused("malformed", keyId);
    const { key, salt } = await this.#key(track, keyId);
    const { nonce, aad } = context(salt, at, immutable);
    let plain: Uint8Array<ArrayBuffer>;
    try {
      plain = new Uint8Array(
        await crypto.subtle.decrypt({ name: "AES-GCM", iv: nonce, additionalData: aad }, key, payload),
      );
    } catch {
      throw new Refused("forged", keyId);
    }
    try {
      return split(plain);
    } catch {
      throw new Refused("malformed", keyId);
    }
  }

  async #openCatalog(at: Place, replayed: boolean, payload: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
    const outer = json(payload);
    const sealed = outer?.["hcsealed"] as SealedCatalog | undefined;
    if (!sealed) throw new Refused("unencrypted");
    const keyId = BigInt(sealed.keyId);
    const place = { group: BigInt(sealed.group), id: BigInt(sealed.object), priority: Number(sealed.priority) };
    const same = place.group === at.group && place.id === at.id && place.priority === at.priority;
    if (!replayed && !same) throw new Refused("forged", keyId);
    const namespace = replayed ? sealed.namespace.map(String) : this.namespace;
    const immutable = new Writer();
    immutable.varint(KEY_ID);
    immutable.varint(keyId);
    const data = Uint8Array.from(atob(sealed.data), (c) => c.charCodeAt(0));
    const opened = await this.#decrypt({ namespace, name: "catalog" }, keyId, place, immutable.finish(), data);
    if (!replayed) return opened.payload;
    this.#recorded = namespace;
    return retime(opened.payload, outer!);
  }

  #key(track: TrackName, keyId: bigint): Promise<Derived> {
    const name = fullTrackName(track);
    const id = JSON.stringify([`${keyId}`, track.namespace, track.name]);
    let derived = this.#derived.get(id);
    if (derived) return derived;
    const secret = this.keys.get(Number(keyId >> RUN_BITS));
    if (!secret) return Promise.reject(new Refused("unknown key", keyId));
    derived = derive(secret, name, keyId);
    if (this.#derived.size === MAX_DERIVED) this.#derived.delete(this.#derived.keys().next().value!);
    this.#derived.set(id, derived);
    return derived;
  }
}

/** Explains to the user why a session's catalog was refused. */
function sentence(e: Refused): string {
  const id = e.keyId >> RUN_BITS;
  switch (e.reason) {
    case "unencrypted":
      return (
        "The session is not encrypted, although the link has a key: the relay can see and replace it. " +
        "Remove #e2e=… from the link if you accept that."
      );
    case "unknown key":
      return `The session is encrypted with key ${id}, which the link lacks. Ask for the new link.`;
    default:
      return `The session cannot be decrypted: the link has another key ${id}, or the relay changed the session.`;
  }
}

function json(payload: Uint8Array): Record<string, unknown> | undefined {
  try {
    return JSON.parse(new TextDecoder().decode(payload)) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

/** Returns a replay's catalog: the tracks that its shell lists, with the shell's times. */
function retime(payload: Uint8Array, shell: Record<string, unknown>): Uint8Array<ArrayBuffer> {
  type Entry = Record<string, unknown>;
  const key = (t: Entry): string => JSON.stringify([t["namespace"] ?? "", t["name"]]);
  const times = new Map((shell["tracks"] as Entry[]).map((t) => [key(t), t]));
  const doc = JSON.parse(new TextDecoder().decode(payload)) as Entry;
  doc["tracks"] = (doc["tracks"] as Entry[]).flatMap((t) => {
    const s = times.get(key(t));
    if (!s) return [];
    const { isLive, targetLatency, buffers, trackDuration, template } = s;
    return [{ ...t, isLive, targetLatency, buffers, trackDuration, template }];
  });
  return new TextEncoder().encode(JSON.stringify(doc));
}

/** Returns the Key ID in the content of Immutable Properties. */
function keyIdIn(immutable: Uint8Array): bigint | undefined {
  const r = new Reader(immutable);
  let type = 0n;
  try {
    while (r.left > 0) {
      type += r.varint();
      if (type % 2n === 1n) r.bytes(immutable.length, "property");
      else if (type === KEY_ID) return r.varint();
      else r.varint();
    }
  } catch {
    // Malformed.
  }
  return undefined;
}

/** Splits a plaintext into payload and Encrypted Properties List (§3.3.3). */
function split(plain: Uint8Array<ArrayBuffer>): OpenedObject {
  const r = new Reader(plain);
  const n = r.int(plain.length, "length of the payload");
  const from = r.pos;
  r.take(n);
  const payload = plain.subarray(from, from + n);
  if (r.left === 0) return { properties: {}, payload };
  if (r.u8() !== 0 || r.u8() !== 0x0a) throw new Refused("malformed");
  const list = r.bytes(plain.length, "properties");
  if (r.left > 0) throw new Refused("malformed");
  return { properties: readProperties(new Reader(list), false), payload };
}

/** Serializes a full track name (§3.3.1). */
export function fullTrackName(track: TrackName): Uint8Array<ArrayBuffer> {
  const w = new Writer();
  w.varint(track.namespace.length);
  for (const field of track.namespace) w.string(field);
  w.string(track.name);
  return w.finish();
}

/** Forms nonce (§3.6) and additional data (§3.5). */
export function context(
  salt: Uint8Array,
  at: Place,
  immutable: Uint8Array,
): { nonce: Uint8Array<ArrayBuffer>; aad: Uint8Array<ArrayBuffer> } {
  const aad = new Uint8Array(13 + immutable.length);
  const view = new DataView(aad.buffer);
  view.setBigUint64(0, at.group);
  view.setUint32(8, Number(at.id));
  const nonce = aad.slice(0, 12).map((b, i) => b ^ salt[i]!);
  aad[12] = at.priority;
  aad.set(immutable, 13);
  return { nonce, aad };
}

/** Derives a track's key and salt (§3.7). */
export async function derive(secret: Uint8Array<ArrayBuffer>, track: Uint8Array, keyId: bigint): Promise<Derived> {
  const base = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  const expand = async (label: string, bytes: number): Promise<Uint8Array<ArrayBuffer>> => {
    const text = new TextEncoder().encode(label);
    const info = new Uint8Array(text.length + track.length + 10);
    info.set(text);
    info.set(track, text.length);
    const view = new DataView(info.buffer, text.length + track.length);
    view.setUint16(0, SUITE);
    view.setBigUint64(2, keyId);
    const params = { name: "HKDF", hash: "SHA-256", salt: new Uint8Array(0), info };
    return new Uint8Array(await crypto.subtle.deriveBits(params, base, 8 * bytes));
  };
  const raw = await expand("MOQ 1.0 Secure Objects Secret key ", 16);
  const salt = await expand("MOQ 1.0 Secret salt ", 12);
  return { key: await crypto.subtle.importKey("raw", raw, "AES-GCM", false, ["decrypt"]), salt };
}
