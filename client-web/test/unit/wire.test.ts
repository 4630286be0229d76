import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Reader, ShortError, Writer } from "../../src/moqt/bytes.ts";
import { MalformedTrackError, WireError } from "../../src/moqt/codes.ts";
import {
  encodeDatagram, FetchParser, parseDatagram, readStreamHeader, SubgroupParser, type ObjectHeader, type ObjectSink,
} from "../../src/moqt/data.ts";
import {
  encodeFetch,
  encodeJoiningFetch,
  encodePublish,
  encodePublishDone,
  encodeRequestError,
  encodeRequestOk,
  encodeSetup,
  encodeSubscribe,
  encodeUpdate,
  encodeSubscribeNamespace,
  MessageType,
  parseMessage,
  protocolOf,
  readMessage,
  UnknownMandatoryError,
  versionOf,
  versions,
} from "../../src/moqt/message.ts";

// Generated from internal/moqt/wire: go test ./client-web/test/wirevectors -update
const vectors = JSON.parse(readFileSync(new URL("wire.json", import.meta.url), "utf8")) as {
  varints: { value: string; hex: string }[];
  sent: Record<string, string>;
  received: Record<string, string>;
  streams: Record<string, string>;
  datagrams: Record<string, string>;
  drafts: Record<string, { sent: Record<string, string>; received: Record<string, string>; fetch: string }>;
};
const bytes = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, "hex"));
const hex = (b: Uint8Array): string => Buffer.from(b).toString("hex");

describe("integers", () => {
  it.each(vectors.varints)("$value", ({ value, hex: h }) => {
    const r = new Reader(bytes(h));
    expect(r.varint()).toBe(BigInt(value));
    expect(r.left).toBe(0);
    const w = new Writer();
    w.varint(BigInt(value));
    expect(hex(w.finish())).toBe(h);
    expect(() => new Reader(bytes(h).subarray(0, -1)).varint()).toThrow(ShortError);
  });
});

describe("messages of a viewer", () => {
  const track = { namespace: ["holocast", "bühne"], name: "points/0/full" };
  const all = {
    objectDeliveryTimeout: 400,
    rendezvousTimeout: 10000,
    subgroupDeliveryTimeout: 500,
    priority: 128,
    filter: "largestObject",
    groupOrder: "descending",
  } as const;
  it.each([
    ["setup", encodeSetup("holocast-web")],
    ["setupWithToken", encodeSetup("holocast-web", "a.b.c")],
    ["subscribe", encodeSubscribe(4n, track, {})],
    ["subscribeAll", encodeSubscribe(300n, track, all)],
    ["joiningFetch", encodeJoiningFetch(6n, 4n, 0, 16)],
    ["subscribeNamespace", encodeSubscribeNamespace(8n, ["holocast"])],
    ["startUpdate", encodeUpdate(12n, { start: 1763665200123n })],
    ["groupUpdate", encodeUpdate(14n, { newGroup: 1763665200124n })],
    ["publish", encodePublish(10n, track, 3n)],
    ["requestError", encodeRequestError(3, "no")],
    ["requestOk", encodeRequestOk()],
    ["publishDone", encodePublishDone(2, "")],
    ["datagram", encodeDatagram(3n, 70000n, 128, new TextEncoder().encode("receipt"))],
  ])("%s equals the relay's encoding", (name, encoded) => {
    expect(hex(encoded)).toBe(vectors.sent[name]);
  });
});

describe("messages to a viewer", () => {
  const want: Record<string, object> = {
    setup: { type: "setup", implementation: "holocast" },
    goaway: { type: "goaway", uri: "https://other.example:4443/", timeout: 5000 },
    subscribeOk: {
      type: "subscribeOk", alias: 1n << 60n, parameters: { largest: { group: 1763665200123n, object: 2n }, expires: 0 },
      properties: { priority: 7, other: new Map<number, unknown>([[0x101, Uint8Array.of(0x78)], [0x78, 1n]]) },
    },
    fetchOk: { type: "fetchOk", endOfTrack: true, end: { group: 9n, object: 1n } },
    requestOk: { type: "ok", parameters: { forward: false } },
    requestError: { type: "error", code: 0x10, retryAfter: 1000, reason: "nobody publishes it" },
    redirect: { type: "error", code: 0x34, retryAfter: undefined, reason: "there" },
    publishDone: { type: "done", code: 5, streams: (1n << 62n) - 1n, reason: "slow" },
    update: { type: "update", id: 1n, parameters: { forward: true } },
    namespace: { type: "namespace", added: true, suffix: ["bühne"] },
    namespaceDone: { type: "namespace", added: false, suffix: ["bühne"] },
    subscribe: { type: "peerRequest", code: 3 },
  };
  it.each(Object.keys(want))("%s", (name) => {
    const r = new Reader(bytes(vectors.received[name]!));
    expect(readMessage(r)).toMatchObject(want[name]!);
    expect(r.left).toBe(0);
  });
  it.each(Object.keys(want))("%s, truncated anywhere, waits for more", (name) => {
    const b = bytes(vectors.received[name]!);
    for (let n = 0; n < b.length; n++) expect(() => readMessage(new Reader(b.subarray(0, n)))).toThrow(ShortError);
  });
  it("refuses an unknown mandatory track property", () => {
    expect(() => readMessage(new Reader(bytes(vectors.received["mandatory"]!)))).toThrow(UnknownMandatoryError);
  });
  it("throws only its own errors for arbitrary input", () => {
    for (const h of Object.values(vectors.received)) {
      const b = bytes(h);
      for (let bit = 0; bit < 8 * b.length; bit++) {
        const damaged = b.slice();
        damaged[bit >> 3]! ^= 1 << (bit & 7);
        try {
          readMessage(new Reader(damaged));
        } catch (e) {
          if (!(e instanceof WireError || e instanceof ShortError || e instanceof UnknownMandatoryError)) throw e;
        }
      }
    }
  });
  it.each([
    ["an unknown type", "1a0000", /unknown message type 0x1a/],
    ["bytes after the end", "0800020000", /bytes after the last field/],
    ["an unknown parameter", "070003010100", /parameter 0x1 is not allowed/],
    ["a message that ends inside a field", "07000101", /ends inside a field/],
  ])("refuses %s with PROTOCOL_VIOLATION", (_, h, message) => {
    expect(() => readMessage(new Reader(bytes(h)))).toThrow(message);
  });
});

/** Records a parser's output. */
class Notes implements ObjectSink {
  readonly objects: { header: ObjectHeader; payload: number[] }[] = [];
  object(header: ObjectHeader): void {
    this.objects.push({ header, payload: [] });
  }
  payload(b: Uint8Array): void {
    this.objects.at(-1)!.payload.push(...b);
  }
}

const counting = (n: number): number[] => Array.from({ length: n }, (_, i) => i & 255);

function parse(stream: string, piece: number): { notes: Notes; boundary: boolean } {
  const b = bytes(stream);
  const r = new Reader(b);
  const head = readStreamHeader(r);
  const notes = new Notes();
  if (head.type !== "subgroup" && head.type !== "fetch") throw new Error(head.type);
  const p = head.type === "subgroup" ? new SubgroupParser(head.header, notes) : new FetchParser(notes);
  for (let at = r.pos; at < b.length; at += piece) p.push(b.subarray(at, at + piece));
  return { notes, boundary: p.boundary };
}

describe("data streams", () => {
  it.each([1, 2, 7, 1000])("objects of a subgroup, in pieces of %i bytes", (piece) => {
    const { notes, boundary } = parse(vectors.streams["explicit"]!, piece);
    expect(boundary).toBe(true);
    expect(notes.objects.map((o) => o.header)).toMatchObject([
      {
        group: 1n << 40n,
        subgroup: 3n,
        id: 2n,
        priority: 9,
        length: 3n,
        status: "normal",
        properties: { other: new Map([[0x78, 1n]]) },
      },
      { id: 3n, length: 0n, status: "normal" },
      { id: 7n, length: 300n },
      { id: 8n, length: 0n, status: "endOfGroup" },
    ]);
    expect(notes.objects.map((o) => o.payload)).toEqual([counting(3), [], counting(300), []]);
  });
  it("a subgroup named by its first object", () => {
    const { notes } = parse(vectors.streams["firstObject"]!, 1);
    expect(notes.objects.map((o) => o.header.subgroup)).toEqual([2n, 2n, 2n, 2n]);
    expect(notes.objects[0]!.header.priority).toBeUndefined();
  });
  it("subgroup zero", () => {
    expect(parse(vectors.streams["zero"]!, 5).notes.objects[0]!.header).toMatchObject({
      group: 8n,
      subgroup: 0n,
      priority: 0,
    });
  });
  it.each([1, 3, 1000])("a fetched range, in pieces of %i bytes", (piece) => {
    const { notes, boundary } = parse(vectors.streams["fetch"]!, piece);
    expect(boundary).toBe(true);
    expect(notes.objects.map(({ header: h }) => [h.group, h.id, h.subgroup, h.priority, h.length])).toEqual([
      [5n, 0n, 0n, 9, 4n],
      [5n, 1n, 1n, 10, 4n],
      [5n, 2n, 1n, 10, 0n],
      [8n, 0n, 0n, 10, 2n],
      [9n, 4n, 70n, 1, 200n],
    ]);
    expect(notes.objects[4]!.payload).toEqual(counting(200));
  });
  it("knows padding", () => {
    expect(readStreamHeader(new Reader(bytes(vectors.streams["padding"]!)))).toEqual({ type: "padding" });
  });
  it("reports payload as it arrives", () => {
    const b = bytes(vectors.streams["zero"]!);
    const r = new Reader(b);
    const head = readStreamHeader(r);
    const notes = new Notes();
    if (head.type !== "subgroup") throw new Error(head.type);
    const p = new SubgroupParser(head.header, notes);
    p.push(b.subarray(r.pos, b.length - 200));
    expect(notes.objects).toHaveLength(3);
    expect(notes.objects[2]!.payload.length).toBeGreaterThan(90);
    expect(p.boundary).toBe(false);
  });
  it("refuses an object after the end of its group as a malformed track", () => {
    const b = bytes(vectors.streams["zero"]! + "000100");
    const r = new Reader(b);
    const head = readStreamHeader(r);
    if (head.type !== "subgroup") throw new Error(head.type);
    expect(() => new SubgroupParser(head.header, new Notes()).push(b.subarray(r.pos))).toThrow(MalformedTrackError);
  });
  it("throws only its own errors for arbitrary input", () => {
    for (const name of ["explicit", "firstObject", "zero", "fetch"]) {
      const h = vectors.streams[name]!;
      for (let bit = 0; bit < 4 * Math.min(h.length, 160); bit++) {
        const damaged = bytes(h);
        damaged[bit >> 3]! ^= 1 << (bit & 7);
        try {
          parse(hex(damaged), 9);
        } catch (e) {
          const own = e instanceof WireError || e instanceof ShortError || e instanceof MalformedTrackError;
          if (!own && !/^(padding|setup)$/.test((e as Error).message)) throw e;
        }
      }
    }
  });
});

describe("datagrams", () => {
  it("an object", () => {
    const d = parseDatagram(bytes(vectors.datagrams["normal"]!))!;
    expect(d).toMatchObject({ alias: 5n, group: 9n, object: 2n, status: "normal" });
    expect(new TextDecoder().decode(d.payload)).toBe("stamp");
  });
  it("a status", () => {
    expect(parseDatagram(bytes(vectors.datagrams["status"]!))).toMatchObject({ object: 3n, status: "endOfTrack" });
  });
  it("padding", () => {
    expect(parseDatagram(bytes(vectors.datagrams["padding"]!))).toBeNull();
  });
  it("refuses a truncated datagram", () => {
    const b = bytes(vectors.datagrams["status"]!);
    for (let n = 0; n < b.length; n++) expect(() => parseDatagram(b.subarray(0, n))).toThrow(WireError);
  });
});

describe("draft-19", () => {
  const uri = "https://other.example:4443/";
  const goaway = (rest: number[]): Uint8Array => {
    const w = new Writer();
    w.string(uri);
    w.varint(5000);
    for (const v of rest) w.varint(v);
    return w.finish();
  };

  it("has a GOAWAY without a request ID", () => {
    const want = { type: "goaway", uri, timeout: 5000 };
    expect(parseMessage(MessageType.GOAWAY, goaway([]), 19)).toEqual(want);
    expect(() => parseMessage(MessageType.GOAWAY, goaway([12]), 19)).toThrow(/after the last field/);
    expect(parseMessage(MessageType.GOAWAY, goaway([12]), 18)).toEqual(want);
  });

  it("has no PUBLISH_OK", () => {
    expect(parseMessage(MessageType.PUBLISH_OK, Uint8Array.of(0), 18).type).toBe("ok");
    expect(() => parseMessage(MessageType.PUBLISH_OK, Uint8Array.of(0), 19)).toThrow(/unknown message type/);
  });

  it("is negotiated by its ALPN identifier", () => {
    expect(versions.map(protocolOf)).toEqual(["moqt-22", "moqt-21", "moqt-20", "moqt-19", "moqt-18"]);
    expect(versionOf("moqt-19")).toBe(19);
    expect(versionOf("moqt-17")).toBeUndefined();
  });
});

describe.each([20, 22] as const)("draft-%i", (v) => {
  const vector = vectors.drafts[String(v)]!;
  const track = { namespace: ["holocast", "bühne"], name: "points/0/full" };
  it.each([
    ["subscribeAndFill", encodeSubscribe(4n, track, { filter: "largestObject" }, v, true)],
    ["subscribeNextGroup", encodeSubscribe(4n, track, { filter: "nextGroup" }, v)],
    ["subscribeFromStart", encodeSubscribe(4n, track, { start: 0n }, v)],
    ["startUpdate", encodeUpdate(12n, { start: 1763665200123n }, v)],
    ["endUpdate", encodeUpdate(12n, { start: 300n, end: 600n }, v)],
    ["fetchGroups", encodeFetch(6n, track, 300n, 301n, 16, undefined, v)],
    ["fetchObjects", encodeFetch(6n, track, 300n, 300n, 16, { first: 2, last: 200 }, v)],
  ])("%s equals the relay's encoding", (name, encoded) => {
    expect(hex(encoded)).toBe(vector.sent[name]);
  });
  it.each([
    ["state", { type: "state", parameters: { largest: { group: 300n, object: 2n }, forward: false } }],
    ["requestOk", { type: "ok", parameters: { expires: 7 } }],
    ["update", { type: "update", id: 1n, parameters: { forward: true } }],
  ])("reads %s", (name, want) => {
    const b = bytes(vector.received[name]!);
    const r = new Reader(b);
    expect(readMessage(r, v)).toMatchObject(want);
    expect(r.left).toBe(0);
    for (let n = 0; n < b.length; n++) expect(() => readMessage(new Reader(b.subarray(0, n)), v)).toThrow(ShortError);
  });
  it("skips objects that were not available in time", () => {
    const r = new Reader(bytes(vector.fetch));
    readStreamHeader(r);
    const notes = new Notes();
    new FetchParser(notes, true).push(r.take(r.left));
    expect(notes.objects.map((o) => o.header.group)).toEqual([5n, 8n]);
    const early = new Reader(bytes(vector.fetch));
    readStreamHeader(early);
    expect(() => new FetchParser(new Notes()).push(early.take(early.left))).toThrow(/flags 0x20c/);
  });
  it("does not know parameters of PUBLISH_OK that moved to REQUEST_UPDATE", () => {
    expect(() => parseMessage(MessageType.REQUEST_OK, bytes("011000"), v)).toThrow(/parameter 0x10 is not allowed/);
  });
});

describe("before draft-20", () => {
  it("there is no PUBLISH_STATE_NOTIFY", () => {
    expect(() => parseMessage(MessageType.PUBLISH_STATE_NOTIFY, bytes("00"), 19)).toThrow(/unknown message type 0x22/);
  });
});
