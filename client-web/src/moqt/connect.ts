/** Connects to a relay and handles certificates, connection errors and retries. */
import { SessionError } from "./codes.ts";
import { Session, type ConnectOptions } from "./session.ts";

export type ConnectFailure =
  | "no-webtransport" // the browser lacks WebTransport
  | "unreachable" // no answer over UDP or HTTP
  | "certificate" // the relay answers, but its certificate is not trusted
  | "refused"; // the relay answers over HTTP, but the session fails

export class ConnectError extends Error {
  constructor(
    readonly failure: ConnectFailure,
    message: string,
    cause?: unknown,
  ) {
    super(message, { cause });
    this.name = "ConnectError";
  }
}

function parseHash(hex: string): Uint8Array<ArrayBuffer> | undefined {
  const clean = hex.trim().replaceAll(":", "").toLowerCase();
  if (!/^[0-9a-f]{64}$/.test(clean)) return undefined;
  return Uint8Array.from(clean.match(/../g)!, (b) => parseInt(b, 16));
}

/** Fetches the certificate hash from the relay's HTTP server, which uses the same port number. */
async function askHash(relay: URL): Promise<{ answered: boolean; hash: Uint8Array<ArrayBuffer> | undefined }> {
  const http = new URL("/certificate.sha256", relay);
  http.protocol = "http:";
  const loopback = ["localhost", "127.0.0.1", "[::1]"].includes(relay.hostname);
  // Because of mixed-content rules, an https page may fetch over http only from loopback.
  if (globalThis.location?.protocol === "https:" && !loopback) return { answered: false, hash: undefined };
  try {
    const r = await fetch(http, { cache: "no-store", signal: AbortSignal.timeout(3000) });
    if (!r.ok) return { answered: true, hash: undefined };
    const text = await r.text();
    return { answered: true, hash: text.length > 256 ? undefined : parseHash(text) };
  } catch {
    return { answered: false, hash: undefined };
  }
}

/**
 * Which transport to use: WebTransport, or a WebSocket where the relay does not answer over UDP. A
 * WebSocket always in browsers without WebTransport and in all with WebKit, whose WebTransport never
 * refills its flow control and stops after 16 MiB (WebKit bug 319818).
 */
export type TransportChoice = "auto" | "quic" | "tcp";

/** WebKit's browsers, all on iOS included. Chromium's have the frozen version 537.36. */
const isWebKit = (): boolean => /AppleWebKit\/(?!537\.36\b)/.test(globalThis.navigator?.userAgent ?? "");

/** False in browsers that need a WebSocket. */
export const hasQUIC = (): boolean => typeof WebTransport !== "undefined" && !isWebKit();

/** How long WebTransport may take before the WebSocket starts too, and may come behind it, in ms. */
const HEAD_START = 500;
const GRACE = 500;
/** How long a relay is remembered that answered over TCP only, ms. */
const REMEMBER = 600_000;
/** When each relay, by host, answered over TCP only. */
const tcpOnly = new Map<string, number>();

const isLoopback = (u: URL): boolean => ["localhost", "127.0.0.1", "[::1]"].includes(u.hostname);

/**
 * The WebSocket's URLs to try. Browsers accept only certificates of known authorities for wss, so the
 * pages of a development relay, over http, use ws. A link that names a certificate does not.
 */
function socketURLs(relay: URL, pinned: string | undefined): string[] {
  const url = (protocol: string): string => relay.href.replace(/^https:/, protocol);
  const plainPage = globalThis.location?.protocol === "http:";
  if (isLoopback(relay)) return plainPage ? [url("ws:"), url("wss:")] : [url("wss:"), url("ws:")];
  return plainPage && !pinned ? [url("wss:"), url("ws:")] : [url("wss:")];
}

/** Opens a session over a WebSocket. */
async function connectTCP(relay: URL, pinned: string | undefined, o: ConnectOptions): Promise<Session> {
  let first: unknown;
  for (const url of socketURLs(relay, pinned)) {
    try {
      return await Session.connect(url, o);
    } catch (e) {
      if (e instanceof SessionError) throw e;
      first ??= e;
    }
  }
  const detail = first instanceof Error && first.message ? ` (${first.message})` : "";
  throw new ConnectError("unreachable", `Nothing answers at ${relay.host} over TCP${detail}.`);
}

/**
 * Opens a session. `pinned` is a certificate hash from the link, in hex; if set, WebTransport trusts no
 * other certificate. Otherwise it trusts the hash that the relay reports over plain HTTP (a development
 * certificate), if the page may fetch it, and certificates issued by an authority that the browser knows.
 */
export async function connect(
  url: string,
  pinned: string | undefined,
  o: ConnectOptions & { readonly transport?: TransportChoice | undefined } = {},
): Promise<Session> {
  const relay = new URL(url);
  const choice = o.transport ?? "auto";
  if (choice === "tcp" || (choice === "auto" && !hasQUIC())) return connectTCP(relay, pinned, o);
  if (typeof WebTransport === "undefined")
    throw new ConnectError("no-webtransport", "This browser has no WebTransport.");
  if (choice === "quic") return connectQUIC(relay, pinned, o);
  return race(relay, (started) => connectQUIC(relay, pinned, o, started), () => connectTCP(relay, pinned, o));
}

/**
 * Opens a session over WebTransport or, if that takes longer than HEAD_START or fails, over a WebSocket.
 * Rejects with WebTransport's error if both fail.
 */
async function race(
  relay: URL,
  overQUIC: (started: () => void) => Promise<Session>,
  overTCP: () => Promise<Session>,
): Promise<Session> {
  const remembered = performance.now() - (tcpOnly.get(relay.host) ?? -Infinity) < REMEMBER;
  let over = false;
  const wait = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
  let start!: () => void;
  const due = new Promise<void>((resolve) => (start = resolve));
  const quic = overQUIC(() => void wait(remembered ? 0 : HEAD_START).then(start));
  const refused = quic.then(
    () => false,
    (e: unknown) => {
      start();
      return e instanceof ConnectError && (e.failure === "certificate" || e.cause instanceof SessionError);
    },
  );
  const tcp = due.then(async () => {
    if (over || (await Promise.race([refused, wait(0).then(() => false)]))) throw new Error("not needed");
    return overTCP();
  });
  const late = tcp.then(async (s) => {
    await Promise.race([quic.catch(() => {}), wait(remembered ? 0 : GRACE)]);
    return s;
  });
  const closeLoser = (loser: Promise<Session>): void => void loser.then((s) => s.close(), () => {});
  try {
    const winner = await Promise.any([quic, late]);
    over = true;
    if (winner.tcp) tcpOnly.set(relay.host, performance.now());
    else tcpOnly.delete(relay.host);
    closeLoser(winner.tcp ? quic : tcp);
    return winner;
  } catch {
    const why = await tcp.then(() => undefined, (e: unknown) => e);
    if (why instanceof SessionError) throw why;
    return quic; // rejects
  }
}

/** Opens a session over WebTransport, and calls `started` before it tries. */
async function connectQUIC(
  relay: URL,
  pinned: string | undefined,
  o: ConnectOptions,
  started: () => void = () => {},
): Promise<Session> {
  const asked = askHash(relay);
  const slow = setTimeout(started, HEAD_START);
  const { answered, hash } = await asked;
  clearTimeout(slow);
  started();
  let pin: Uint8Array<ArrayBuffer> | undefined;
  if (pinned) {
    pin = parseHash(pinned);
    if (!pin) throw new ConnectError("certificate", "The link's certificate hash is not a SHA-256 in hex.");
    if (hash && hash.some((b, i) => b !== pin![i])) {
      throw new ConnectError(
        "certificate",
        `The certificate of the relay at ${relay.host} is not the one in the link.`,
      );
    }
  }
  try {
    const trusted = pin ?? hash;
    return await Session.connect(relay.href, trusted ? { ...o, certificateHashes: [trusted] } : o);
  } catch (e) {
    if (hash && !pin) {
      // Try an authority-issued certificate without the hash, as WebTransport does not combine the two.
      try {
        return await Session.connect(relay.href, o);
      } catch {
        // Report the first error, which is more specific.
      }
    }
    const detail = e instanceof Error && e.message ? ` (${e.message.replace(/\.$/, "")})` : "";
    if (answered) {
      throw new ConnectError(
        hash || pin ? "refused" : "certificate",
        hash || pin
          ? `The relay at ${relay.host} answers over HTTP but not over WebTransport; ` +
            `check that UDP is allowed.${detail}`
          : `The relay's certificate was refused, or UDP does not reach it${detail}.`,
        e,
      );
    }
    throw new ConnectError("unreachable", `Nothing answers at ${relay.host}${detail}.`, e);
  }
}

const FIRST_RETRY = 200;
const LAST_RETRY = 5000;
/** Time, in ms, that the old session stays open after a migration while the new one starts to receive. */
const OVERLAP = 1000;

export interface KeepOptions extends ConnectOptions {
  readonly url: string;
  readonly pinned?: string;
  readonly transport?: TransportChoice | undefined;
  /**
   * Called when a session opens and replaces the previous one. After a GOAWAY the previous session
   * stays open for OVERLAP, to receive without a gap.
   */
  readonly use: (session: Session) => void;
  /**
   * Called when a session ends or cannot be opened. Unless the browser lacks WebTransport, the next
   * attempt follows in `retryIn` milliseconds.
   */
  readonly failed: (why: Error, retryIn: number) => void;
}

/** Keeps a session open until the signal aborts. Backs off between attempts. */
export async function keep(o: KeepOptions, signal: AbortSignal): Promise<void> {
  let wait = FIRST_RETRY;
  let url = o.url;
  let previous: Session | undefined;
  const left = new Promise<"abort">((resolve) =>
    signal.addEventListener("abort", () => resolve("abort"), { once: true }),
  );
  while (!signal.aborted) {
    let why: Error;
    try {
      const s = await connect(url, o.pinned, o);
      if (signal.aborted) return s.close();
      const before = previous;
      previous = s;
      const began = performance.now();
      o.use(s);
      if (before) setTimeout(() => before.close(), OVERLAP);
      const next = await Promise.race([s.closed, s.goaway, left]);
      if (next === "abort") return s.close();
      if (performance.now() - began > LAST_RETRY) wait = FIRST_RETRY;
      if (typeof next === "string") {
        // The relay sent GOAWAY (§3.6).
        url = next.startsWith("https://") ? next : o.url;
        continue;
      }
      why = next;
    } catch (e) {
      why = e instanceof Error ? e : new Error(String(e));
      url = o.url;
    }
    o.failed(why, wait);
    if (why instanceof ConnectError && why.failure === "no-webtransport") return;
    await Promise.race([left, new Promise((resolve) => setTimeout(resolve, wait))]);
    wait = Math.min(2 * wait, LAST_RETRY) * (1 + Math.random() / 4); // jitter keeps viewers from reconnecting in step
  }
}
