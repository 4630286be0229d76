/** The catalog's sound tracks, of microphones (docs/spec/sound.md) and of 360° video (docs/spec/tiles.md). */
import { configuration, type Catalog, type Timeline, type Track } from "../session/catalog.ts";
import { CatalogError, integer, numbers, object, text } from "../session/json.ts";

export interface SoundTrack {
  readonly track: string;
  readonly codec: string;
  /** AudioSpecificConfig; undefined for Opus. */
  readonly config: Uint8Array<ArrayBuffer> | undefined;
  readonly sampleRate: number;
  readonly channels: number;
  /** Set for a microphone. */
  readonly microphone: Microphone | undefined;
  /** How long the relay keeps trying to deliver a packet, ms. */
  readonly timeout: number;
  /** Maximum duration of a group, ms. */
  readonly group: number;
  /** Media time of groups, for a recording. */
  readonly timeline: Timeline | undefined;
}

export interface Microphone {
  readonly name: string;
  /** Place in studio space, millimetres; undefined for sound without a place. */
  readonly position: readonly [number, number, number] | undefined;
}

/** Maximum number of tracks played at the same time. */
const MAX_SOUNDS = 8;
const MAX_CHANNELS = 8;
const MIN_RATE = 8000;
const MAX_RATE = 96_000;
const MAX_MICROPHONES = 65536;
/** Sample rate of a microphone's track, Hz. */
const RATE = 48_000;
/** Largest coordinate of a place, mm. */
const MAX_POSITION = 1e6;
/** Duration and delivery timeout of a microphone's packets, ms. */
const PACKET = 10;
const TIMEOUT = 500;
/** Defaults for 360° video, ms. */
const GOP = 1000;
const LATENCY = 1000;

/** Reads a catalog's sound tracks, at most eight. Throws a CatalogError. */
export function readSounds(catalog: Catalog): readonly SoundTrack[] {
  const microphones = new Map<Track, Microphone>();
  for (const t of catalog.tracks) if (t.fields["hcau"] != null) microphones.set(t, readMicrophone(t));
  if (typeof AudioDecoder === "undefined") return []; // Safari before 26 decodes video only
  const video = catalog.tracks.find((t) => t.fields["hcsphere"] != null);
  return catalog.tracks
    .filter((t) => t.role === "audio" && t.packaging === "loc" && t.namespace === "")
    .slice(0, MAX_SOUNDS)
    .map((t) => readSound(catalog, t, microphones.get(t), video));
}

function readSound(
  catalog: Catalog,
  t: Track,
  microphone: Microphone | undefined,
  video: Track | undefined,
): SoundTrack {
  const channels = Number(t.channelConfig || 2);
  if (!(t.samplerate >= MIN_RATE && t.samplerate <= MAX_RATE) || !(channels >= 1 && channels <= MAX_CHANNELS))
    throw new CatalogError(`${t.path}.samplerate`, "no sound has this format");
  const about = {
    track: t.name, codec: t.codec, config: configuration(catalog, t), sampleRate: t.samplerate, channels,
    timeline: t.timeline ?? video?.timeline,
  };
  if (microphone) return { ...about, microphone, timeout: TIMEOUT, group: PACKET };
  const gop = figure(video, "maxGopDuration", GOP);
  const timeout = Math.ceil(figure(video, "targetLatency", LATENCY) + gop);
  return { ...about, microphone, timeout, group: gop };
}

function readMicrophone(t: Track): Microphone {
  const path = `${t.path}.hcau`;
  const o = object(t.fields["hcau"], path);
  const want = (ok: boolean, at: string, detail: string): void => {
    if (!ok) throw new CatalogError(at, detail);
  };
  want(t.role === "audio", path, `not allowed, role is “${t.role}”`);
  want(t.packaging === "loc", `${t.path}.packaging`, "not loc, as hcau needs");
  want(t.codec === "opus", `${t.path}.codec`, "not opus, as hcau needs");
  want(t.samplerate === RATE, `${t.path}.samplerate`, `not ${RATE}, as hcau needs`);
  want(t.channelConfig === "1" || t.channelConfig === "2", `${t.path}.channelConfig`, "neither 1 nor 2");
  integer(o["microphone"] ?? 0, `${path}.microphone`, 0, MAX_MICROPHONES - 1);
  want(o["packet"] === PACKET, `${path}.packet`, `not ${PACKET}`);
  const delivery = o["delivery"] ?? "";
  want(["", "stream", "datagram"].includes(delivery as string), `${path}.delivery`, "neither stream nor datagram");
  const name = text(o["microphoneName"] ?? "", `${path}.microphoneName`);
  if (o["position"] == null) return { name, position: undefined };
  const [x, y, z] = numbers(o["position"], `${path}.position`, 3);
  want(Math.max(Math.abs(x!), Math.abs(y!), Math.abs(z!)) <= MAX_POSITION, `${path}.position`, "too far away");
  return { name, position: [x!, y!, z!] };
}

function figure(t: Track | undefined, field: string, otherwise: number): number {
  const v = t?.fields[field];
  return typeof v === "number" && v > 0 ? Math.min(v, 60_000) : otherwise;
}
