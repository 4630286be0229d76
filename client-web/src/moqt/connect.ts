/** Connects to a relay and handles certificates, connection errors, retries and the change to other relays. */
import { SessionError } from "./codes.ts";
import { MAX_ROSTER, parseRoster, ROSTER_TRACK, type KnownRelay } from "./roster.ts";
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

/** Interval between checks of the relay's silence, ms, and the interval from which this page was stalled. */
const LOOK = 50;
const STALLED = 4 * LOOK;
/** Silence, ms, after which other relays are dialed, and after which the relay is left for one that answers. */
const SUSPECT = 300;
const DEAD = 500;
/** Interval between dials to several relays, ms. */
const STAGGER = 200;

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

interface Target {
  readonly url: string;
  /** Certificate hash in hex, from the link or from another relay. */
  readonly pinned: string | undefined;
  /** True if another relay named the certificate. */
  readonly known: boolean;
}

/** Opens a session with a relay that another relay named. Its certificate may be an authority's. */
async function connectKnown(t: Target, o: ConnectOptions): Promise<Session> {
  const hash = t.pinned === undefined ? undefined : parseHash(t.pinned);
  if (hash) {
    try {
      return await Session.connect(t.url, { ...o, certificateHashes: [hash] });
    } catch {
      // Browsers accept hashes of short-lived certificates only.
    }
  }
  return Session.connect(t.url, o);
}

/** The relays that a viewer may use. */
class Relays {
  #known: readonly KnownRelay[] = [];

  constructor(private readonly home: Target) {}

  /** Follows the relay's list until the session ends. */
  async learn(s: Session): Promise<void> {
    try {
      const object = (b: Uint8Array) => {
        this.#known = parseRoster(b);
      };
      await s.subscribe(
        ROSTER_TRACK,
        { maxObject: MAX_ROSTER, object: (o) => object(o.payload) },
        { join: true, filter: "largestObject" },
      );
    } catch {
      // The relay is in no cluster.
    }
  }

  /** The other relays, best first. Relays with equal costs are in random order. */
  except(at: Target): Target[] {
    const here = new URL(at.url).host;
    const order = this.#known.map((r) => ({ r, rank: r.cost + Math.random() })).sort((a, b) => a.rank - b.rank);
    const list: Target[] = order.map(({ r }) => ({ url: r.url, pinned: r.sha256, known: true }));
    return list.filter((t) => new URL(t.url).host !== here);
  }

  /** The target of a GOAWAY. The fragment may be the certificate's hash, like in links. */
  at(uri: string): Target {
    const [url = "", hash = ""] = uri.split("#");
    if (parseHash(hash)) return { url, pinned: hash, known: true };
    const { host } = new URL(url);
    const known = this.#known.find((r) => new URL(r.url).host === host);
    return known ? { url, pinned: known.sha256, known: true } : { ...this.home, url };
  }
}

/** Number of consecutive moves without delay: a full relay may redirect a viewer to another full one. */
const PROMPT_MOVES = 2;

/** Limits how often a session moves after GOAWAYs, since a relay may send one in each new session. */
class Pace {
  #moves = 0;
  #wait = 0;

  /** How long to stay with a session that received a GOAWAY after `lasted`, ms. */
  delay(lasted: number): number {
    if (lasted > LAST_RETRY) this.#moves = this.#wait = 0;
    if (++this.#moves <= PROMPT_MOVES) return 0;
    this.#wait = Math.min(Math.max(2 * this.#wait, FIRST_RETRY), LAST_RETRY);
    return this.#wait * (1 + Math.random() / 4);
  }
}

/** Dials the targets one after the other, STAGGER apart, and returns the first session. */
async function connectAny(
  targets: readonly Target[],
  o: KeepOptions,
  signal: AbortSignal,
): Promise<{ s: Session; at: Target }> {
  let open: Session | undefined;
  const dial = async (at: Target, i: number) => {
    if (i > 0) await sleep(i * STAGGER);
    if (open || signal.aborted) throw new Error("not needed");
    const s = await (at.known ? connectKnown(at, o) : connect(at.url, at.pinned, o));
    if (open || signal.aborted) {
      s.close();
      throw new Error("not needed");
    }
    open = s;
    return { s, at };
  };
  const attempts = targets.map(dial);
  try {
    return await Promise.any(attempts);
  } catch {
    return await attempts[0]!; // throws its error
  }
}

/**
 * Waits until `s` has been silent for DEAD while another relay answers, and returns a session with that
 * relay. Returns undefined when the signal aborts.
 */
async function outlive(
  s: Session,
  at: Target,
  relays: Relays,
  o: KeepOptions,
  signal: AbortSignal,
): Promise<{ s: Session; at: Target } | undefined> {
  let from = performance.now(); // ignore silence before, when this page was stalled
  let looked = from;
  const silent = () => performance.now() - Math.max(s.heard, from) - Math.min(s.requestTime, 1000);
  const tick = async () => {
    await sleep(LOOK);
    const now = performance.now();
    if (now - looked >= STALLED) from = now;
    looked = now;
  };
  while (!signal.aborted) {
    await tick();
    const others = relays.except(at);
    if (silent() < SUSPECT || others.length === 0) continue;
    const dialing = new AbortController();
    let next: { s: Session; at: Target } | undefined;
    let failed = false;
    connectAny(others, o, dialing.signal).then((n) => (next = n), () => (failed = true));
    while (!signal.aborted && !failed && silent() >= SUSPECT) {
      if (next && silent() >= DEAD) return next;
      await tick();
    }
    dialing.abort();
    next?.s.close();
    if (failed) await sleep(FIRST_RETRY);
  }
  return undefined;
}

/**
 * Keeps a session open until the signal aborts. Backs off between attempts. If the relay falls silent or is lost,
 * continues at another one of its cluster.
 */
export async function keep(o: KeepOptions, signal: AbortSignal): Promise<void> {
  let wait = FIRST_RETRY;
  const home: Target = { url: o.url, pinned: o.pinned, known: false };
  const relays = new Relays(home);
  let targets: readonly Target[] = [home];
  let ready: { s: Session; at: Target } | undefined;
  let previous: Session | undefined;
  let hops = 0; // changes of the relay since the last pause
  const pace = new Pace();
  const left = new Promise<"abort">((resolve) =>
    signal.addEventListener("abort", () => resolve("abort"), { once: true }),
  );
  while (!signal.aborted) {
    let why: Error;
    try {
      const { s, at } = ready ?? (await connectAny(targets, o, signal));
      ready = undefined;
      if (signal.aborted) return s.close();
      const before = previous;
      previous = s;
      const began = performance.now();
      o.use(s);
      void relays.learn(s);
      if (before) setTimeout(() => before.close(), OVERLAP);
      const over = new AbortController();
      const silent = outlive(s, at, relays, o, over.signal).then((next) => next ?? new Promise<never>(() => {}));
      const next = await Promise.race([s.closed, s.goaway, left, silent]);
      over.abort();
      if (next === "abort") return s.close();
      if (performance.now() - began > LAST_RETRY) {
        wait = FIRST_RETRY;
        hops = 0;
      }
      if (typeof next === "string") {
        // The relay sent GOAWAY (§3.6).
        targets = [next.startsWith("https://") ? relays.at(next) : home];
        const delay = pace.delay(performance.now() - began);
        if (delay > 0) await Promise.race([left, sleep(delay)]);
        continue;
      }
      if ("at" in next) {
        ready = next;
        continue;
      }
      why = next;
      const others = relays.except(at);
      targets = [...others, at];
      if (hops++ < others.length) continue;
    } catch (e) {
      why = e instanceof Error ? e : new Error(String(e));
      targets = [home, ...relays.except(home)];
    }
    hops = 0;
    o.failed(why, wait);
    if (why instanceof ConnectError && why.failure === "no-webtransport") return;
    await Promise.race([left, sleep(wait)]);
    wait = Math.min(2 * wait, LAST_RETRY) * (1 + Math.random() / 4); // jitter keeps viewers from reconnecting in step
  }
}
