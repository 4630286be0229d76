/** The network's side of a viewer, off the page's thread: a session and the media it carries. */
import type { FromNetwork, Start, ToNetwork } from "./messages.ts";
import { Points } from "./points/medium.ts";
import { Viewer } from "./session/viewer.ts";

const send = (m: FromNetwork): void => postMessage(m);

function open(start: Start): { readonly viewer: Viewer; readonly points: Points } {
  let points!: Points;
  const viewer = new Viewer(start, (host) => [(points = new Points(host, start.decoders, start.quality, send))], send);
  return { viewer, points };
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
    default:
      opened?.points.take(m);
  }
});
