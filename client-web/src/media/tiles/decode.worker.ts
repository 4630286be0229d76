/**
 * Decodes video off the page's thread. Each tile has its own decoder and is decoded
 * shortly before it is due.
 */
import { localTime } from "../session/clock.ts";
import { Decoders } from "./decoders.ts";
import { mediaTime, type Due, type FromVideo, type PageToVideo, type ToVideo } from "./messages.ts";

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

const feed = (): void => video.feed(mediaTime(due, localTime()), due.still === undefined);

addEventListener("message", (e: MessageEvent<PageToVideo>) => {
  network = e.data.network;
  network.onmessage = ({ data: m }: MessageEvent<ToVideo>) => {
    switch (m.type) {
      case "sphere":
        video.sphere = m.sphere;
        if (!m.same) video.drop();
        break;
      case "due":
        due = m;
        feed(); // a pause precedes its chunks
        break;
      case "drop":
        run = m.run;
        video.drop();
        break;
      case "release":
        video.release(m.tile);
        break;
      case "chunk":
        if (m.run === run) video.add(m);
    }
  };
});
setInterval(feed, TICK);
