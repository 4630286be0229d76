/** Connects to a relay and handles certificates, connection errors and retries. */
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
  ) {
    super(message);
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
 * Opens a session. `pinned` is a certificate hash from the link, in hex; if set, no other certificate
 * is trusted. Otherwise it trusts the hash that the relay reports over plain HTTP (a development certificate), if the
 * page may fetch it, and certificates issued by an authority that the browser knows.
 */
export async function connect(url: string, pinned: string | undefined, o: ConnectOptions = {}): Promise<Session> {
  if (typeof WebTransport === "undefined") {
    throw new ConnectError("no-webtransport", "This browser has no WebTransport.");
  }
  const relay = new URL(url);
  const { answered, hash } = await askHash(relay);
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
      );
    }
    throw new ConnectError("unreachable", `Nothing answers at ${relay.host}${detail}.`);
  }
}

const FIRST_RETRY = 200;
const LAST_RETRY = 5000;
/** Time, in ms, that the old session stays open after a migration while the new one starts to receive. */
const OVERLAP = 1000;

export interface KeepOptions extends ConnectOptions {
  readonly url: string;
  readonly pinned?: string;
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
