import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { connect, keep } from "../../src/moqt/connect.ts";
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

  it("does not dial incessantly when each session receives a GOAWAY", async () => {
    const { used } = start();
    for (let i = 0; i < 600; i++) {
      for (const s of opened) s.leave("https://two.example/");
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(used.length).toBeGreaterThan(8);
    expect(used.length).toBeLessThan(25);
    expect(used.filter((s) => !s.isClosed).length).toBeLessThan(3);
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

describe("connect", () => {
  /** URLs tried, with the time since the start, ms. */
  let tried: [string, number][];
  let began: number;
  const never = new Promise<never>(() => {});

  /** Answers a URL's scheme after a time, ms; undefined: never; negative: with an error. */
  const answer = (times: Record<string, number | undefined>): void => {
    vi.spyOn(Session, "connect").mockImplementation(async (url) => {
      tried.push([url, performance.now() - began]);
      const scheme = url.split(":")[0]!;
      const after = times[scheme];
      if (after === undefined) return never;
      await new Promise((resolve) => setTimeout(resolve, Math.abs(after)));
      if (after < 0) throw new Error("refused");
      return { url, tcp: scheme.startsWith("ws"), close: () => {} } as unknown as Session;
    });
  };

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("WebTransport", class {});
    vi.stubGlobal("fetch", () => Promise.reject(new Error("no HTTP here")));
    vi.stubGlobal("location", { protocol: "https:" });
    tried = [];
    began = performance.now();
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  });

  /** The scheme of the session that opened and the time that it took, ms. */
  const opens = async (url: string, pinned?: string): Promise<[string, number]> => {
    began = performance.now();
    let result: [string, number] | undefined;
    void connect(url, pinned).then(
      (s) => (result = [(s as unknown as { url: string }).url.split(":")[0]!, performance.now() - began]),
      (e: Error) => (result = [e.message, performance.now() - began]),
    );
    for (let ms = 0; ms < 20_000 && !result; ms += 10) await vi.advanceTimersByTimeAsync(10);
    return [result![0], Math.round(result![1] / 10) * 10];
  };

  it("prefers WebTransport", async () => {
    answer({ https: 300, wss: 10 });
    expect(await opens("https://a.example/")).toEqual(["https", 300]);
    expect(tried.map(([url]) => url)).toEqual(["https://a.example/"]);
  });

  it("waits a little for WebTransport after the WebSocket", async () => {
    answer({ https: 900, wss: 10 });
    expect(await opens("https://b.example/")).toEqual(["https", 900]);
  });

  it("uses a WebSocket where UDP gets no answer, and remembers that", async () => {
    answer({ wss: 50 });
    expect(await opens("https://c.example/studio")).toEqual(["wss", 1050]);
    expect(await opens("https://c.example/studio")).toEqual(["wss", 50]);
    expect(tried.at(-1)![0]).toBe("wss://c.example/studio");
  });

  it("uses a WebSocket at once if WebTransport fails", async () => {
    answer({ https: -20, wss: 50 });
    expect(await opens("https://d.example/")).toEqual(["wss", 70]);
  });

  it("reports WebTransport's error if both fail", async () => {
    answer({ https: -20, wss: -50 });
    expect((await opens("https://e.example/"))[0]).toBe("Nothing answers at e.example (refused).");
  });

  it.each([
    ["Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
      "CriOS/140.0 Mobile/15E148 Safari/604.1", "wss"],
    ["Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.5 " +
      "Safari/605.1.15", "wss"],
    ["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36", "https"],
    ["Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0", "https"],
  ])("in %s", async (userAgent, scheme) => {
    vi.stubGlobal("navigator", { userAgent });
    answer({ https: 10, wss: 10 });
    expect((await opens("https://f.example/"))[0]).toBe(scheme);
    expect(tried).toHaveLength(1);
  });

  it.each([
    ["http:", "https://g.example/", undefined, ["wss", "ws"]],
    ["http:", "https://g.example/", "00".repeat(32), ["wss"]],
    ["https:", "https://g.example/", undefined, ["wss"]],
    ["http:", "https://127.0.0.1:4443/", undefined, ["ws", "wss"]],
  ])("without TLS: page %s, relay %s, hash %s", async (protocol, url, pinned, schemes) => {
    vi.stubGlobal("WebTransport", undefined);
    vi.stubGlobal("location", { protocol });
    answer({ wss: -10, ws: -10 });
    await opens(url, pinned);
    expect(tried.map(([u]) => u.split(":")[0])).toEqual(schemes);
  });
});
