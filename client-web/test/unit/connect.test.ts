import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keep } from "../../src/moqt/connect.ts";
import { parseRoster } from "../../src/moqt/roster.ts";
import type { ReceivedObject, TrackName, TrackSink } from "../../src/moqt/index.ts";
import { Session } from "../../src/moqt/session.ts";

/** A session as `keep` sees it. */
class Opened {
  isClosed = false;
  leave!: (uri: string) => void;
  end!: (why: Error) => void;
  readonly goaway = new Promise<string>((resolve) => (this.leave = resolve));
  readonly closed = new Promise<Error>((resolve) => (this.end = resolve));
  /** When data last arrived. */
  heard = performance.now();
  readonly requestTime = 0;

  constructor(
    readonly url: string,
    readonly roster: string | undefined,
    readonly pinned: boolean,
  ) {}

  subscribe(_: TrackName, sink: TrackSink): Promise<void> {
    if (this.roster === undefined) return Promise.reject(new Error("no such track"));
    sink.object({ payload: new TextEncoder().encode(this.roster) } as ReceivedObject);
    return Promise.resolve();
  }

  close(): void {
    this.isClosed = true;
  }
}

describe("keep", () => {
  const opened: Opened[] = [];
  let stop: AbortController;
  let roster: string | undefined;
  let unreachable: string[];

  beforeEach(() => {
    opened.length = 0;
    roster = undefined;
    unreachable = [];
    stop = new AbortController();
    vi.useFakeTimers();
    vi.stubGlobal("WebTransport", class {});
    vi.stubGlobal("fetch", () => Promise.reject(new Error("no HTTP here")));
    vi.spyOn(Session, "connect").mockImplementation((url, o) => {
      if (unreachable.includes(url)) return Promise.reject(new Error("no answer"));
      const s = new Opened(url, roster, o?.certificateHashes !== undefined);
      opened.push(s);
      return Promise.resolve(s as unknown as Session);
    });
  });

  afterEach(() => {
    stop.abort();
    vi.useRealTimers();
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  });

  const start = (): { used: Opened[]; failed: Error[]; over: Promise<void> } => {
    const used: Opened[] = [];
    const failed: Error[] = [];
    const over = keep(
      { url: "https://one.example/", use: (s) => used.push(s as unknown as Opened), failed: (why) => failed.push(why) },
      stop.signal,
    );
    return { used, failed, over };
  };

  it("keeps the old session for a while after a move", async () => {
    const { used, failed } = start();
    await vi.advanceTimersByTimeAsync(0);
    opened[0]!.leave("https://two.example/");
    await vi.advanceTimersByTimeAsync(0);
    expect(used.map((s) => s.url)).toEqual(["https://one.example/", "https://two.example/"]);
    expect(opened[0]!.isClosed).toBe(false);
    await vi.advanceTimersByTimeAsync(1500);
    expect([opened[0]!.isClosed, opened[1]!.isClosed]).toEqual([true, false]);
    expect(failed).toEqual([]);
  });

  it("reconnects to the relay it moved to", async () => {
    const { used, failed } = start();
    await vi.advanceTimersByTimeAsync(0);
    opened[0]!.leave("https://two.example/");
    await vi.advanceTimersByTimeAsync(0);
    opened[1]!.end(new Error("lost"));
    await vi.advanceTimersByTimeAsync(0);
    expect(failed.map((e) => e.message)).toEqual(["lost"]);
    await vi.advanceTimersByTimeAsync(300);
    expect(used.map((s) => s.url)).toEqual(["https://one.example/", "https://two.example/", "https://two.example/"]);
  });

  it("closes the session when aborted", async () => {
    const { over } = start();
    await vi.advanceTimersByTimeAsync(0);
    stop.abort();
    await over;
    expect(opened.map((s) => s.isClosed)).toEqual([true]);
  });

  const two = "https://two.example/";
  const cluster = JSON.stringify({
    relays: [
      { url: "moqt://two.example", sha256: "0a".repeat(32) },
      { url: "moqt://three.example", cost: 1 },
    ],
  });

  it("continues at another relay when the first falls silent", async () => {
    roster = cluster;
    const { used, failed } = start();
    await vi.advanceTimersByTimeAsync(0);
    const [one] = opened;
    for (let i = 0; i < 20; i++) {
      one!.heard = performance.now();
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(opened.length).toBe(1);
    await vi.advanceTimersByTimeAsync(600);
    expect(used.map((s) => [s.url, s.pinned])).toEqual([["https://one.example/", false], [two, true]]);
    expect(failed).toEqual([]);
  });

  it("stays when the silent relay is heard again", async () => {
    roster = cluster;
    const { used } = start();
    await vi.advanceTimersByTimeAsync(0);
    const [one] = opened;
    one!.heard = performance.now();
    await vi.advanceTimersByTimeAsync(400);
    expect(opened.length).toBe(2); // dialed, to be ready
    for (let i = 0; i < 10; i++) {
      one!.heard = performance.now();
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(used.length).toBe(1);
    expect(opened[1]!.isClosed).toBe(true);
  });

  it("stays when no other relay answers or is known", async () => {
    const alone = start();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(alone.used.length).toBe(1);
    roster = cluster;
    unreachable = [two, "https://three.example/"];
    const { used, failed } = start();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(used.length).toBe(1);
    expect(failed).toEqual([]);
  });

  it("tries the others at once when the session is lost", async () => {
    roster = cluster;
    const { used, failed } = start();
    await vi.advanceTimersByTimeAsync(0);
    unreachable = [two];
    opened[0]!.end(new Error("lost"));
    await vi.advanceTimersByTimeAsync(250);
    expect(used.map((s) => s.url)).toEqual(["https://one.example/", "https://three.example/"]);
    expect(failed).toEqual([]);
  });

  it("ignores malformed lists", () => {
    const parse = (text: string) => parseRoster(new TextEncoder().encode(text));
    expect(parse(cluster)).toEqual([
      { url: two, sha256: "0a".repeat(32), cost: 0 },
      { url: "https://three.example/", sha256: undefined, cost: 1 },
    ]);
    for (const text of [
      "", "[]", "null", '{"relays":3}', '{"relays":[3,null,{}]}', '{"relays":[{"url":"https://a/"}]}',
      '{"relays":[{"url":"moqt://a/b"},{"url":"moqt://"},{"url":"moqt://a b"}]}',
    ])
      expect(parse(text), text).toEqual([]);
    expect(parse(`{"relays":[${Array(50).fill('{"url":"moqt://a"}').join()}]}`).length).toBe(8);
  });
});
