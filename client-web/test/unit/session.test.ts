/** Tests sessions against a relay that sends exactly the test's bytes. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Encryption, parseKeys } from "../../src/media/session/encryption.ts";
import { Writer } from "../../src/moqt/bytes.ts";
import { encodePadding, parseDatagram } from "../../src/moqt/data.ts";
import { MessageType } from "../../src/moqt/message.ts";
import { Session, type ReceivedObject } from "../../src/moqt/session.ts";
import { hex, objects, unhex } from "./sealed.ts";

/** A stream from the relay. */
class Incoming {
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  readonly readable = new ReadableStream<Uint8Array>({
    start: (c) => void (this.#controller = c),
    cancel: () => void (this.cancelled = true),
  });
  cancelled = false;

  send(write: (w: Writer) => void): void {
    const w = new Writer();
    write(w);
    this.#controller.enqueue(w.finish());
  }
}

/** The WebTransport session, whose peer is the test. */
let relay: Relay;

class Relay {
  readonly protocol = "moqt-22";
  readonly ready = Promise.resolve();
  readonly closed = new Promise<WebTransportCloseInfo>(() => {});
  #datagrams!: ReadableStreamDefaultController<Uint8Array>;
  /** Datagrams from the viewer. */
  readonly sent: Uint8Array[] = [];
  readonly datagrams = {
    readable: new ReadableStream<Uint8Array>({ start: (c) => void (this.#datagrams = c) }),
    writable: new WritableStream<Uint8Array>({ write: (b) => void this.sent.push(b) }),
    incomingHighWaterMark: 0,
  };
  readonly incomingBidirectionalStreams = new ReadableStream();
  #streams!: ReadableStreamDefaultController<ReadableStream<Uint8Array>>;
  readonly incomingUnidirectionalStreams = new ReadableStream<ReadableStream<Uint8Array>>({
    start: (c) => void (this.#streams = c),
  });
  /** Answers to the viewer's requests, from their first byte on. */
  readonly requests: Incoming[] = [];

  constructor() {
    relay = this;
    this.open().send((w) => message(w, MessageType.SETUP, []));
  }

  /** Sends a datagram of padding. */
  pad(): void {
    this.#datagrams.enqueue(encodePadding());
  }

  /** Opens a stream to the viewer. */
  open(): Incoming {
    const s = new Incoming();
    this.#streams.enqueue(s.readable);
    return s;
  }

  createUnidirectionalStream = async (): Promise<WritableStream> => new WritableStream();
  createBidirectionalStream = async (): Promise<{ readable: ReadableStream; writable: WritableStream }> => {
    const answer = new Incoming();
    const writable = new WritableStream({ write: () => void this.requests.push(answer) });
    return { readable: answer.readable, writable };
  };
  close(): void {}
}

function message(w: Writer, type: number, fields: readonly (number | bigint)[]): void {
  const body = new Writer();
  for (const f of fields) body.varint(f);
  const b = body.finish();
  w.varint(type);
  w.u8(b.length >> 8);
  w.u8(b.length & 0xff);
  w.raw(b);
}

describe("a session whose relay is silent", () => {
  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("WebTransport", Relay);
  });
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  it("sends padding until the relay is heard or the session ends", async () => {
    const s = await Session.connect("https://relay.example/");
    for (let i = 0; i < 5; i++) {
      await vi.advanceTimersByTimeAsync(500);
      relay.pad();
    }
    expect(relay.sent).toEqual([]);
    await vi.advanceTimersByTimeAsync(3500);
    expect(relay.sent.map(parseDatagram)).toEqual([null, null, null]);
    s.close();
    await vi.advanceTimersByTimeAsync(5000);
    expect(relay.sent).toHaveLength(3);
  });
});

describe("a subscription that requests a fill", () => {
  const v = objects[0]!;
  const [group, object] = [BigInt(v.group), BigInt(v.object)];
  const track = { namespace: v.namespace, name: v.name };
  const accepted = (): void =>
    relay.requests[0]!.send((w) => message(w, MessageType.SUBSCRIBE_OK, [7, 1, 9, group, object]));
  /** The fetch stream of request 0 with the vector's object. */
  const fill = (w: Writer): void => {
    for (const f of [5, 0, 0x3c, group, object]) w.varint(f);
    w.u8(v.priority);
    w.bytes(unhex(v.sealedProperties));
    w.bytes(unhex(v.sealed));
  };
  let received: ReceivedObject[];
  const sink = { maxObject: v.payload.length / 2, object: (o: ReceivedObject) => void received.push(o) };

  beforeEach(() => {
    received = [];
    vi.stubGlobal("WebTransport", Relay);
  });
  afterEach(() => vi.unstubAllGlobals());

  it("receives it decrypted, even before SUBSCRIBE_OK", async () => {
    const opener = new Encryption(v.namespace, parseKeys(v.keys), () => {});
    const session = await Session.connect("https://relay.example/", { opener });
    const subscribed = session.subscribe(track, sink, { filter: "largestObject", join: true });
    await vi.waitFor(() => expect(relay.requests.length).toBe(1));
    relay.open().send(fill);
    await vi.waitFor(() => expect(received.length).toBe(1));
    accepted();
    await subscribed;
    expect(hex(received[0]!.payload)).toBe(v.payload);
    expect(opener.counters.opened).toBe(1);
  });

  it("receives no more of it once cancelled", async () => {
    const session = await Session.connect("https://relay.example/");
    const large = { ...sink, maxObject: 1000 };
    const subscribed = session.subscribe(track, large, { filter: "largestObject", join: true });
    await vi.waitFor(() => expect(relay.requests.length).toBe(1));
    accepted();
    const sub = await subscribed;
    const stream = relay.open();
    stream.send(fill);
    await vi.waitFor(() => expect(received.length).toBe(1));
    sub.cancel();
    stream.send((w) => {
      for (const f of [0x04, 1]) w.varint(f); // the next object, of one byte
      w.u8(0);
    });
    await vi.waitFor(() => expect(stream.cancelled).toBe(true));
    expect(received.length).toBe(1);
  });
});
