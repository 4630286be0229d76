/**
 * Decodes video and sound off the page's thread. Each tile has its own decoder and is decoded
 * shortly before it is due.
 */
import { localTime } from "../session/clock.ts";
import { Decoders } from "./decoders.ts";
import { mediaTime, SOUND, type Due, type FromVideo, type PageToVideo, type ToVideo } from "./messages.ts";
import { Sound } from "./sound.ts";
import type { SoundTrack } from "./track.ts";

/** Interval between checks for chunks that are due, ms. */
const TICK = 15;

const send = (m: FromVideo, transfer: Transferable[] = []): void => postMessage(m, { transfer });

let network: MessagePort | undefined;
let due: Due = { type: "due", shift: 0, still: undefined };
/** Counts seeks; results of earlier runs are dropped. */
let run = 0;
const video = new Decoders({
  picture: (tile, quality, frame) =>
    send({ type: "picture", run, tile, quality, timestamp: frame.timestamp, frame }, [frame]),
  bad: (tile, message) => send({ type: "bad", tile, message }),
  most: (tiles) => network?.postMessage(tiles),
  now: localTime,
});

let sound: Sound | undefined;
const openSound = (track: SoundTrack): Sound =>
  new Sound(track, {
    samples: (m) => send({ type: "samples", run, ...m }, m.channels.map((c) => c.buffer)),
    bad: (message) => send({ type: "bad", tile: SOUND, message }),
  });

/** Discards waiting chunks and resets the decoders. */
function drop(): void {
  video.drop();
  sound?.close();
  sound = undefined;
}

addEventListener("message", (e: MessageEvent<PageToVideo>) => {
  network = e.data.network;
  network.onmessage = ({ data: m }: MessageEvent<ToVideo>) => {
    switch (m.type) {
      case "sphere":
        video.sphere = m.sphere;
        if (!m.same) drop();
        break;
      case "due":
        due = m;
        break;
      case "drop":
        run = m.run;
        drop();
        break;
      case "release":
        video.release(m.tile);
        break;
      case "packet":
        if (m.run === run && video.sphere?.sound)
          (sound ??= openSound(video.sphere.sound)).decode(m.timestamp, m.data);
        break;
      case "chunk":
        if (m.run === run) video.add(m);
    }
  };
});
setInterval(() => video.feed(mediaTime(due, localTime()), due.still === undefined), TICK);
