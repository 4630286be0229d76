import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keep } from "../../src/moqt/connect.ts";
import { Session } from "../../src/moqt/session.ts";

/** A session as `keep` sees it. */
class Opened {
  isClosed = false;
  leave!: (uri: string) => void;
  end!: (why: Error) => void;
  readonly goaway = new Promise<string>((resolve) => (this.leave = resolve));
  readonly closed = new Promise<Error>((resolve) => (this.end = resolve));

  constructor(readonly url: string) {}

  close(): void {
    this.isClosed = true;
  }
}

describe("keep", () => {
  const opened: Opened[] = [];
  let stop: AbortController;

  beforeEach(() => {
    opened.length = 0;
    stop = new AbortController();
    vi.useFakeTimers();
    vi.stubGlobal("WebTransport", class {});
    vi.stubGlobal("fetch", () => Promise.reject(new Error("no HTTP here")));
    vi.spyOn(Session, "connect").mockImplementation((url) => {
      const s = new Opened(url);
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
});
