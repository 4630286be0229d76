import type { MeterSnapshot } from "./hud/meter.ts";
import type { Look } from "../scene/points.ts";
import type { PartsCounts } from "../media/points/parts.ts";
import type { EncryptionCounters } from "../media/session/encryption.ts";
import type { Phase } from "../media/session/messages.ts";
import type { SoundStats } from "./sound.ts";
import type { VideoStats } from "./video.ts";

/** The session's statistics, which are displayed, copied as JSON and read by tests. */
export interface Stats extends MeterSnapshot {
  readonly session: string | undefined;
  readonly relay: string;
  readonly relay_host: string;
  readonly relay_implementation: string;
  /** "" before the first session. */
  readonly transport: "quic" | "tcp" | "";
  readonly phase: Phase;
  readonly detail: string;
  readonly cameras: number;
  /** Quality received from each camera, and the requested quality or "auto". */
  readonly qualities: readonly string[];
  readonly quality: string;
  /** Root mean square error that coding with loss adds to each camera's depth, mm; null if unknown. */
  readonly depth_error_mm: readonly (number | null)[];
  /** The event from which the frame delay counts; "arrival" in a replay, whose frames were captured long ago. */
  readonly delay_from: "capture" | "arrival";
  /** Position in a seekable recording; null without one. */
  readonly playback: {
    readonly duration_ms: number;
    readonly position_ms: number;
    readonly playing: boolean;
    readonly live: boolean;
    readonly waiting: boolean;
  } | null;
  /** Frames received in full or in part. */
  readonly frames_received: number;
  /** Gaps in the sequence numbers of received frames. */
  readonly frames_lost: number;
  readonly frames_late: number;
  /** Frames received but superseded before they could be drawn. */
  readonly frames_skipped: number;
  /**
   * Frames the relay was asked not to send because the page draws more slowly than the frame rate.
   */
  readonly frames_declined: number;
  /** Counters of frames sent in datagrams; null if there are none. */
  readonly parts: PartsCounts | null;
  readonly streams_cut: number;
  readonly streams_refused: number;
  readonly streams_malformed: number;
  /** Objects of an encrypted session; null without keys. */
  readonly encryption: EncryptionCounters | null;
  readonly reconnects: number;
  readonly rtt_ms: number;
  readonly clock: { readonly offset_ms: number | null; readonly error_ms: number | null };
  /** 360° video; null without any. */
  readonly video: VideoStats | null;
  /** null without a sound track. */
  readonly sound: SoundStats | null;
  /** Duration of the GPU's last picture, ms. */
  readonly draw_ms: number;
  /** How cameras' frames are drawn. */
  readonly look: Look;
  /** Share of points drawn; below 1 on a GPU too slow for all. */
  readonly drawn_share: number;
  /** Time from opening the page until the first frame is drawn, ms. */
  readonly first_frame_ms: number | null;
}
