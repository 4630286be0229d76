/** QMux: test vectors shared with Go (internal/qmux), and a connection to a peer in memory. */
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  decodeParameters, decodeRecord, encodeFrame, encodeParameters, FrameType, MAX_RECORD, Output, QMuxSocket,
  StreamReset, TransportCode, TransportError, type Frame, type Parameters,
} from "../../src/moqt/qmux.ts";

interface Vectors {
  records: {
    name: string;
    hex: string;
    frames: (Partial<Omit<Frame, "data" | "type">> & { type: string; data?: string })[];
  }[];
  malformed: { name: string; hex: string }[];
  parameters: { name: string; hex: string; value: Partial<Parameters> }[];
  malformedParameters: { name: string; hex: string }[];
}
const vectors = JSON.parse(
  readFileSync(new URL("../../../internal/qmux/testdata/vectors.json", import.meta.url), "utf8"),
) as Vectors;

const unhex = (s: string): Uint8Array<ArrayBuffer> => Uint8Array.from(s.match(/../g) ?? [], (b) => parseInt(b, 16));

const TYPES: Record<string, Frame["type"]> = {
  stream: FrameType.STREAM, reset: FrameType.RESET, resetAt: FrameType.RESET_AT, stopSending: FrameType.STOP_SENDING,
  maxData: FrameType.MAX_DATA, maxStreamData: FrameType.MAX_STREAM_DATA, maxStreamsBidi: FrameType.MAX_STREAMS_BIDI,
  maxStreamsUni: FrameType.MAX_STREAMS_UNI, dataBlocked: FrameType.DATA_BLOCKED,
  streamDataBlocked: FrameType.STREAM_DATA_BLOCKED, streamsBlocked: FrameType.STREAMS_BLOCKED, ping: "ping",
  pong: "pong", datagram: FrameType.DATAGRAM, close: FrameType.CLOSE, closeApplication: FrameType.CLOSE_APPLICATION,
  parameters: "parameters",
};
const frame = (type: Frame["type"], fields: Partial<Frame> = {}): Frame => ({
  type, id: 0, value: 0, code: 0, at: 0, data: new Uint8Array(0), fin: false, ...fields,
});

describe("vectors", () => {
  it.each(vectors.records)("$name", ({ hex, frames }) => {
    const want = frames.map((f) => frame(TYPES[f.type]!, { ...f, type: TYPES[f.type]!, data: unhex(f.data ?? "") }));
    expect(decodeRecord(unhex(hex))).toEqual(want);
    for (const f of want) expect(decodeRecord(encodeFrame(new Output(), f).bytes)).toEqual([f]);
  });
  it.each(vectors.malformed)("malformed: $name", ({ hex }) => {
    expect(() => decodeRecord(unhex(hex))).toThrow(
      expect.objectContaining({ code: TransportCode.FRAME_ENCODING_ERROR }) as Error,
    );
  });
  it.each(vectors.parameters)("parameters: $name", ({ hex, value }) => {
    const want: Parameters = {
      idle: 0, data: 0, bidiLocal: 0, bidiRemote: 0, uni: 0, streamsBidi: 0, streamsUni: 0, datagram: 0,
      record: MAX_RECORD, resetAt: false, ...value,
    };
    expect(decodeParameters(unhex(hex))).toEqual(want);
    expect(decodeParameters(encodeParameters(want) as Uint8Array<ArrayBuffer>)).toEqual(want);
  });
  it.each(vectors.malformedParameters)("malformed parameters: $name", ({ hex }) => {
    expect(() => decodeParameters(unhex(hex))).toThrow(
      expect.objectContaining({ code: TransportCode.TRANSPORT_PARAMETER_ERROR }) as Error,
    );
  });
});

/** A WebSocket whose peer is the test. */
class Socket {
  static readonly OPEN = 1;
  static last: Socket;
  readyState = 0;
  bufferedAmount = 0;
  protocol = "";
  closed = false;
  onopen!: () => void;
  onmessage!: (m: { data: unknown }) => void;
  onclose!: () => void;
  sent: Frame[] = [];

  constructor(
    readonly url: string,
    readonly protocols: string[],
  ) {
    Socket.last = this;
  }

  open(): void {
    this.readyState = Socket.OPEN;
    this.protocol = this.protocols[0]!;
    this.onopen();
  }

  send(b: Uint8Array<ArrayBuffer>): void {
    this.sent.push(...decodeRecord(b.slice()));
  }

  receive(...frames: Frame[]): void {
    const out = new Output();
    for (const f of frames) encodeFrame(out, f);
    this.onmessage({ data: out.bytes.buffer });
  }

  close(): void {
    this.closed = true;
  }

  /** Takes the frames of a type that were sent. */
  take(type: Frame["type"]): Frame[] {
    const found = this.sent.filter((f) => f.type === type);
    this.sent = this.sent.filter((f) => f.type !== type);
    return found;
  }
}

describe("connection", () => {
  let mux: QMuxSocket;
  let peer: Socket;
  const stream = (id: number, value: number, data: string | Uint8Array<ArrayBuffer>, fin = false): Frame =>
    frame(FrameType.STREAM, {
      id, value, fin, data: typeof data === "string" ? new TextEncoder().encode(data) : data,
    });
  const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

  beforeEach(async () => {
    vi.stubGlobal("WebSocket", Socket);
    mux = new QMuxSocket("wss://relay.example/", ["moqt-19"]);
    peer = Socket.last;
    peer.open();
    peer.receive(frame("parameters", { data: encodeParameters({
      idle: 30_000, data: 20_000, bidiLocal: 8000, bidiRemote: 8000, uni: 8000, streamsBidi: 2, streamsUni: 2,
      datagram: 1000, record: MAX_RECORD, resetAt: true,
    }) as Uint8Array<ArrayBuffer> }));
    await mux.ready;
  });
  afterEach(() => {
    mux.close();
    vi.unstubAllGlobals();
  });

  it("offers the drafts", () => {
    expect(peer.protocols).toEqual(["qmux-02.moqt-19", "qmux-01.moqt-19"]);
    expect(mux.protocol).toBe("moqt-19");
    expect(peer.sent[0]!.type).toBe("parameters");
  });

  it("receives what came before a reset", async () => {
    const streams = mux.incomingUnidirectionalStreams.getReader();
    peer.receive(stream(3, 0, "head"), frame(FrameType.RESET_AT, { id: 3, code: 7, value: 4, at: 4 }));
    const reader = (await streams.read()).value!.getReader();
    expect(new TextDecoder().decode((await reader.read()).value)).toBe("head");
    await expect(reader.read()).rejects.toMatchObject({ streamErrorCode: 7 });
  });

  it("extends windows and limits as data is read", async () => {
    const streams = mux.incomingUnidirectionalStreams.getReader();
    const chunk = new Uint8Array(16_000);
    const each = 100;
    for (let n = 0; n < 300; n++) {
      const id = 4 * n + 3;
      for (let i = 0; i < each; i++) peer.receive(stream(id, i * chunk.length, chunk, i === each - 1));
      const reader = (await streams.read()).value!.getReader();
      let got = 0;
      for (let r = await reader.read(); !r.done; r = await reader.read()) got += r.value.length;
      expect(got).toBe(each * chunk.length);
    }
    expect(peer.take(FrameType.MAX_DATA).length).toBeGreaterThan(30);
    expect(peer.take(FrameType.MAX_STREAMS_UNI).at(-1)!.value).toBe(1024 + 256);
  });

  it("stops unwanted streams", async () => {
    const streams = mux.incomingUnidirectionalStreams.getReader();
    peer.receive(stream(3, 0, "unwanted"));
    const reader = (await streams.read()).value!.getReader();
    await reader.cancel(new StreamReset(9));
    expect(peer.take(FrameType.STOP_SENDING)).toMatchObject([{ id: 3, code: 9 }]);
    peer.receive(stream(3, 8, "still more"), frame(FrameType.RESET, { id: 3, code: 9, value: 18 }));
  });

  it("sends within the peer's limits", async () => {
    const out = (await mux.createUnidirectionalStream()).getWriter();
    void out.write(new Uint8Array(10_000));
    await settle();
    const size = (): number => peer.take(FrameType.STREAM).reduce((n, f) => n + f.data.length, 0);
    expect(size()).toBe(8000);
    peer.receive(frame(FrameType.MAX_STREAM_DATA, { id: 2, value: 100_000 }));
    await settle();
    expect(size()).toBe(2000);
    void out.write(new Uint8Array(20_000));
    await settle();
    expect(size()).toBe(10_000); // the connection's limit
    peer.receive(frame(FrameType.MAX_DATA, { value: 100_000 }));
    await out.close();
    expect(size()).toBe(10_000);
    await mux.createUnidirectionalStream();
    let third = false;
    void mux.createUnidirectionalStream().then(() => (third = true));
    await settle();
    expect(third).toBe(false);
    peer.receive(frame(FrameType.MAX_STREAMS_UNI, { value: 3 }));
    await settle();
    expect(third).toBe(true);
  });

  it("waits for the socket, and drops datagrams meanwhile", async () => {
    const out = (await mux.createBidirectionalStream()).writable.getWriter();
    const datagrams = mux.datagrams.writable.getWriter();
    peer.bufferedAmount = 1e6;
    let written = false;
    void out.write(new Uint8Array(10)).then(() => (written = true));
    await datagrams.write(new Uint8Array(10));
    await settle();
    expect([written, peer.take(FrameType.STREAM), peer.take(FrameType.DATAGRAM)]).toEqual([false, [], []]);
    peer.bufferedAmount = 0;
    await vi.waitFor(() => expect(written).toBe(true));
    await datagrams.write(new Uint8Array(10));
    expect(peer.take(FrameType.DATAGRAM)).toHaveLength(1);
  });

  it("answers pings", () => {
    peer.receive(frame("ping", { value: 1 }));
    expect(peer.take("pong")).toMatchObject([{ value: 1 }]);
  });

  it.each([
    ["data out of order", [stream(3, 1, "x")], TransportCode.PROTOCOL_VIOLATION],
    ["too much data", Array.from({ length: 132 }, (_, i) => stream(3, i * 16_000, new Uint8Array(16_000))),
      TransportCode.FLOW_CONTROL_ERROR],
    ["too many streams", [stream(4 * 1024 + 3, 0, "x")], TransportCode.STREAM_LIMIT_ERROR],
    ["data on our stream", [stream(0, 0, "x")], TransportCode.STREAM_STATE_ERROR],
    ["data after FIN", [stream(3, 0, "x", true), stream(3, 1, "y")], TransportCode.FINAL_SIZE_ERROR],
    ["second parameters", [frame("parameters")], TransportCode.PROTOCOL_VIOLATION],
    ["answer to no ping", [frame("pong", { value: 99 })], TransportCode.PROTOCOL_VIOLATION],
  ] as [string, Frame[], number][])("closes on %s", async (_, frames, code) => {
    for (const f of frames) peer.receive(f);
    await expect(mux.closed).rejects.toBeInstanceOf(TransportError);
    expect(peer.take(FrameType.CLOSE)).toMatchObject([{ code }]);
    expect(peer.closed).toBe(true);
  });

  it("reports the peer's close", async () => {
    const out = await mux.createUnidirectionalStream();
    peer.receive(frame(FrameType.CLOSE_APPLICATION, { code: 2, data: new TextEncoder().encode("members only") }));
    expect(await mux.closed).toEqual({ closeCode: 2, reason: "members only" });
    await expect(out.getWriter().write(new Uint8Array(1))).rejects.toThrow();
    await expect(mux.createUnidirectionalStream()).rejects.toThrow();
  });
});
