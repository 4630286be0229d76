/** A session's sound. Subscribes to its tracks while sound is on, decodes them, and passes them to their players. */
import type { ReceivedObject, Session, Subscription, TrackSink } from "../../moqt/index.ts";
import type { Catalog } from "../session/catalog.ts";
import { localTime } from "../session/clock.ts";
import type { Host, Medium, RecordedTrack, RecordingSource } from "../session/medium.ts";
import type { Part } from "../session/playback.ts";
import { SoundDecoder } from "./decoder.ts";
import type { Block, FromSounds, FromTrack, SoundCounts, ToSounds } from "./messages.ts";
import { SoundPlayback } from "./playback.ts";
import { Receiver, tooLarge, type Packet } from "./receiver.ts";
import { readSounds, type SoundTrack } from "./track.ts";

/** Rendezvous timeout: how long the relay waits for a publisher, ms. */
const RENDEZVOUS = 10_000;
const RETRY = 500;
const SILENCE = 3000;
/** Subscriber priority (§7), ahead of points and pictures. */
const PRIORITY = 48;
/** Maximum size of an object, bytes. Larger ones are cancelled without counting as refused packets. */
const MAX_OBJECT = 1 << 30;

/** A track and its state. */
class Line {
  readonly receiver: Receiver;
  readonly decoder: SoundDecoder;
  session: Session | undefined;
  subscription: Subscription | undefined;
  /** Counts subscriptions. */
  run = 0;

  constructor(
    readonly track: SoundTrack,
    private readonly port: () => MessagePort | undefined,
  ) {
    this.receiver = new Receiver(track, {
      decode: (timestamp, data) => this.decoder.decode(timestamp, data),
      restart: () => this.flush(),
    });
    this.decoder = new SoundDecoder(track, {
      block: (block) => this.#play(block),
      bad: (message) => this.receiver.refuse(message),
    });
  }

  #play(block: Block): void {
    const m: FromTrack = { type: "block", block };
    this.port()?.postMessage(m, block.channels.map((c) => c.buffer));
  }

  /** Discards packets not yet played. */
  flush(): void {
    this.decoder.close();
    this.port()?.postMessage({ type: "flush" } satisfies FromTrack);
  }

  leave(): void {
    this.run++;
    this.subscription?.cancel();
    this.subscription = this.session = undefined;
    this.receiver.restart();
    this.flush();
  }
}

export class Sounds implements Medium {
  #lines = new Map<string, Line>();
  readonly #ports = new Map<string, MessagePort>();
  /** True if the user turned sound on. */
  #audible = false;
  /** True if the session has nothing but sound. */
  #alone = false;
  #arrived = 0;
  readonly #counted = none(); // of removed tracks

  constructor(
    private readonly host: Host,
    private readonly send: (m: FromSounds) => void,
  ) {}

  readonly accompanies = true;

  get present(): boolean {
    return this.#lines.size > 0;
  }

  /** The position comes from points and pictures. */
  readonly captured = 0;

  take(m: ToSounds): void {
    if (m.type === "player") {
      this.#ports.get(m.track)?.close();
      this.#ports.set(m.track, m.port);
      return;
    }
    this.#audible = m.on;
    if (m.on) this.follow();
    else this.leave();
  }

  prepare(catalog: Catalog): () => void {
    const tracks = readSounds(catalog);
    return () => {
      this.#alone = catalog.tracks.every((t) => t.role === "audio" || t.packaging === "eventtimeline");
      const before = this.#lines;
      this.#lines = new Map(
        tracks.map((t) => {
          const line = before.get(t.track);
          const same = line && JSON.stringify(line.track) === JSON.stringify(t);
          return [t.track, same ? line : new Line(t, () => this.#ports.get(t.track))];
        }),
      );
      for (const line of before.values()) if (this.#lines.get(line.track.track) !== line) this.#drop(line);
      this.send({ type: "sounds", tracks });
    };
  }

  #drop(line: Line): void {
    line.leave();
    add(this.#counted, line.receiver);
  }

  follow(): void {
    const { session } = this.host;
    if (!session || !this.host.live || !this.#audible) return;
    for (const line of this.#lines.values()) if (line.session !== session) void this.#follow(session, line);
  }

  leave(): void {
    for (const line of this.#lines.values()) line.leave();
  }

  clear(): void {
    for (const line of this.#lines.values()) this.#drop(line);
    this.#lines.clear();
    this.send({ type: "sounds", tracks: [] });
  }

  jump(): void {}

  async #follow(s: Session, line: Line): Promise<void> {
    line.leave();
    line.session = s;
    const { run, track, receiver } = line;
    this.#arrived = localTime();
    const receive = (p: Packet): void => this.#receive(line, p, true);
    const sink: TrackSink = {
      maxObject: MAX_OBJECT,
      accept: (h) => {
        if (h.length <= BigInt(receiver.maxPacket)) return true;
        receiver.refuse(tooLarge(h.length, receiver.maxPacket));
        return false;
      },
      object: (o) => {
        if (o.status === "normal") receive(o);
      },
      datagram: (d) => {
        if (d.status !== "normal") return;
        this.host.received(d.payload.length);
        receive(d);
      },
      received: (bytes) => this.host.received(bytes),
    };
    while (!s.over && line.run === run) {
      try {
        const sub = await s.subscribe(this.host.track(track.track), sink, {
          join: track.microphone === undefined, // a GoP's sound is one group
          priority: PRIORITY,
          filter: "largestObject",
          rendezvousTimeout: RENDEZVOUS,
          subgroupDeliveryTimeout: track.timeout,
        });
        if (line.run !== run) return sub.cancel();
        line.subscription = sub;
        await sub.done;
      } catch {
        // The catalog's subscription reports the error.
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY));
    }
  }

  #receive(line: Line, p: Packet, live: boolean): void {
    const now = (this.#arrived = localTime());
    const { offset, loops } = this.host;
    // Recorded packets are old, and the offset is 0 while the session's clock is unknown.
    const clock = live && !loops && offset !== 0 ? now + offset : undefined;
    line.receiver.add(p, now, clock, live);
  }

  recordedTracks(): ReadonlyMap<string, RecordedTrack> {
    return new Map();
  }

  part(recording: Catalog, source: RecordingSource): Part | undefined {
    const tracks = readSounds(recording).flatMap((t) =>
      t.timeline && this.#lines.has(t.track) ? [{ ...t, timeline: t.timeline }] : [],
    );
    if (tracks.length === 0) return undefined;
    return new SoundPlayback(tracks, source, {
      audible: () => this.#audible,
      packet: (name, o: ReceivedObject) => {
        const line = this.#lines.get(name);
        if (line) this.#receive(line, o, false);
      },
      drop: () => {
        for (const line of this.#lines.values()) line.leave();
      },
      received: (bytes) => this.host.received(bytes),
      now: localTime,
    });
  }

  silent(now: number): boolean {
    return this.#audible ? now - this.#arrived > SILENCE : !this.#alone;
  }

  tick(): void {
    if (!this.present) return;
    const n = { ...this.#counted };
    let worst: Line | undefined;
    for (const line of this.#lines.values()) {
      add(n, line.receiver);
      if (line.receiver.refused > (worst?.receiver.refused ?? 0)) worst = line;
    }
    this.send({ type: "soundCounts", ...n, refusal: worst ? refusalOf(worst) : "" });
  }
}

type Counts = Pick<SoundCounts, "received" | "repeated" | "late" | "refused">;

const none = () => ({ received: 0, repeated: 0, late: 0, refused: 0 });

/** Adds b to a. */
function add(a: ReturnType<typeof none>, b: Counts): void {
  for (const key of Object.keys(a) as (keyof Counts)[]) a[key] += b[key];
}

/** A sentence about a track's refused packets. */
function refusalOf({ track, receiver: { refused, reason } }: Line): string {
  return `${refused} packets of track ${track.track} were refused, the last one because of ${reason}.`;
}
