/** One camera's frames on their way to its decoder. */
import { HEADER_LENGTH } from "../decode/header.ts";
import type { Subscription } from "../moqt/index.ts";
import { Assembler } from "./assembler.ts";
import type { CameraTrack } from "./catalog.ts";
import { localTime } from "./clock.ts";
import type { ToDecoder } from "./protocol.ts";
import { Sequence } from "./sequence.ts";

type Objects = Uint8Array<ArrayBuffer>[];
type FrameMessage = Extract<ToDecoder, { type: "frame" }>;

/** One frame is being decoded, the newest waits; those between are skipped. */
export class Feed {
  assembler!: Assembler;
  readonly sequence = new Sequence();
  subscription: Subscription | undefined;
  /** Counts the times that the feed's subscription was begun anew. */
  run = 0;
  skipped = 0;
  /** Local time when the newest frame arrived, and its capture time; ms. */
  arrived = localTime();
  captured = 0;
  #busy = false;
  #next: FrameMessage | undefined;

  /** loops: whether frames whose numbers go back begin anew, as those of a replay do. */
  constructor(
    readonly camera: CameraTrack,
    readonly port: MessagePort,
    private readonly loops: () => boolean,
  ) {
    this.restart();
    this.#post({ type: "setup", camera });
  }

  /** What comes now has nothing to do with what came before. */
  restart(): void {
    this.assembler = new Assembler(this.camera.descriptions, (f) => this.show(f.objects));
    this.sequence.restart();
    if (this.#next) this.skipped++;
    this.#next = undefined;
    this.arrived = localTime();
  }

  #count(objects: Objects): void {
    const object = objects[0]!;
    if (object.length < HEADER_LENGTH) return;
    const header = new DataView(object.buffer, object.byteOffset);
    this.captured = Number(header.getBigUint64(20, true)) / 1000;
    this.sequence.add(header.getUint32(8, true), this.loops());
  }

  /** Takes a frame that it is too late to see. */
  skip(objects: Objects): void {
    this.#count(objects);
    this.skipped++;
  }

  /** Takes a frame that is to be seen now. */
  show(objects: Objects): void {
    this.arrived = localTime();
    this.#count(objects);
    const frame: FrameMessage = { type: "frame", camera: this.camera.camera, objects, arrived: this.arrived };
    if (this.#next) this.skipped++;
    if (this.#busy) this.#next = frame;
    else this.#decode(frame);
  }

  #post(m: ToDecoder, transfer: Transferable[] = []): void {
    this.port.postMessage(m, transfer);
  }

  #decode(f: FrameMessage): void {
    this.#busy = true;
    this.#post(f, f.objects.map((o) => o.buffer));
  }

  /** The decoder is ready for more. */
  decoded(): void {
    this.#busy = false;
    const next = this.#next;
    this.#next = undefined;
    if (next) this.#decode(next);
  }

  close(): void {
    this.run++;
    this.subscription?.cancel();
    this.#post({ type: "remove", camera: this.camera.camera });
  }
}
