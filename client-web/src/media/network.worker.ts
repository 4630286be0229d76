/** The network worker runs a session and its media off the page's thread. */
import type { FromNetwork, Start, ToNetwork } from "./messages.ts";
import { Points } from "./points/medium.ts";
import { h264Acceleration } from "./points/pictures.ts";
import type { Host } from "./session/medium.ts";
import { Viewer } from "./session/viewer.ts";
import { Sounds } from "./sound/medium.ts";
import { Tiles } from "./tiles/medium.ts";

const send = (m: FromNetwork, transfer: Transferable[] = []): void => postMessage(m, { transfer });

interface Opened {
  readonly viewer: Viewer;
  readonly points: Points;
  readonly tiles: Tiles;
  readonly sounds: Sounds;
}

function open(start: Start): Opened {
  let points!: Points;
  let tiles!: Tiles;
  let sounds!: Sounds;
  const openVideo = (): MessagePort => {
    const { port1, port2 } = new MessageChannel();
    send({ type: "openVideo", port: port2 }, [port2]);
    return port1;
  };
  const h264 = h264Acceleration().then((acceleration) => acceleration !== undefined);
  const media = (host: Host) => [
    (points = new Points(host, start.decoders, start.quality, h264, send)),
    (tiles = new Tiles(host, openVideo, start.rate / 8, send)),
    (sounds = new Sounds(host, send)),
  ];
  return { viewer: new Viewer(start, media, send), points, tiles, sounds };
}

let opened: ReturnType<typeof open> | undefined;
addEventListener("message", ({ data: m }: MessageEvent<ToNetwork>) => {
  switch (m.type) {
    case "start":
      opened = open(m);
      opened.viewer.run();
      break;
    case "playback":
      opened?.viewer.control(m.action);
      break;
    case "seen":
      opened?.viewer.setSeen(m.seen);
      break;
    case "stop":
      opened?.viewer.stop();
      break;
    case "sound":
    case "player":
      opened?.sounds.take(m);
      break;
    case "gaze":
    case "fit":
      opened?.tiles.take(m);
      break;
    default:
      opened?.points.take(m);
  }
});
