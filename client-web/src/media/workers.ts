import type { FromNetwork, Start, ToNetwork } from "./messages.ts";
import type { FromDecoder, PageToDecoder } from "./points/messages.ts";
import type { WatchOptions } from "./session/messages.ts";
import type { FromVideo, PageToVideo } from "./tiles/messages.ts";

/** The page's workers. They start before the page; their messages are queued until it listens. */
export class Workers {
  readonly #network = new Worker(new URL("./network.worker.ts", import.meta.url), { type: "module" });
  #kept: (() => void)[] | undefined = [];
  #fromNetwork: (m: FromNetwork) => void = () => {};
  #fromDecoder: (m: FromDecoder) => void = () => {};
  #fromVideo: (m: FromVideo) => void = () => {};

  constructor(watched: WatchOptions) {
    const ports: MessagePort[] = [];
    const count = Math.max(1, Math.min(4, navigator.hardwareConcurrency - 1));
    for (let i = 0; i < count; i++) {
      const { port1, port2 } = new MessageChannel();
      const decoder = new Worker(new URL("./points/decode.worker.ts", import.meta.url), { type: "module" });
      decoder.onmessage = (e: MessageEvent<FromDecoder>) => this.#deliver(() => this.#fromDecoder(e.data));
      decoder.postMessage({ network: port1 } satisfies PageToDecoder, [port1]);
      ports.push(port2);
    }
    this.#network.onmessage = (e: MessageEvent<FromNetwork>) => {
      if (e.data.type === "openVideo") this.#openVideo(e.data.port);
      else this.#deliver(() => this.#fromNetwork(e.data));
    };
    const start: Start = { type: "start", ...watched, decoders: ports };
    this.#network.postMessage(start, ports);
  }

  /** Started on demand, as sessions without video do not need it. */
  #openVideo(port: MessagePort): void {
    const video = new Worker(new URL("./tiles/decode.worker.ts", import.meta.url), { type: "module" });
    video.onmessage = (e: MessageEvent<FromVideo>) => this.#deliver(() => this.#fromVideo(e.data));
    video.postMessage({ network: port } satisfies PageToVideo, [port]);
  }

  #deliver(message: () => void): void {
    if (this.#kept) this.#kept.push(message);
    else message();
  }

  /** Delivers all messages, queued ones first. */
  listen(
    fromNetwork: (m: FromNetwork) => void,
    fromDecoder: (m: FromDecoder) => void,
    fromVideo: (m: FromVideo) => void,
  ): void {
    this.#fromNetwork = fromNetwork;
    this.#fromDecoder = fromDecoder;
    this.#fromVideo = fromVideo;
    const kept = this.#kept ?? [];
    this.#kept = undefined;
    for (const message of kept) message();
  }

  send(m: ToNetwork, transfer: Transferable[] = []): void {
    this.#network.postMessage(m, transfer);
  }
}
