import type { MeterSnapshot } from "./hud/meter.ts";
import type { PartsCounts } from "../media/points/parts.ts";
import type { Phase } from "../media/session/messages.ts";
import type { VideoStats } from "./video.ts";

/** Statistics of the session: shown, copied as JSON, read by tests. */
export interface Stats extends MeterSnapshot {
  readonly session: string | undefined;
  readonly relay: string;
  readonly relay_host: string;
  readonly relay_implementation: string;
  readonly phase: Phase;
  readonly detail: string;
  readonly cameras: number;
  /** Quality received of each camera, and what is asked for: a name, or "auto". */
  readonly qualities: readonly string[];
  readonly quality: string;
  /** From when frame delay counts: "arrival" in a replay, whose frames were captured long ago. */
  readonly delay_from: "capture" | "arrival";
  /** Position in a seekable recording; null without one. */
  readonly playback: { readonly duration_ms: number; readonly position_ms: number; readonly playing: boolean; readonly live: boolean; readonly waiting: boolean } | null;
  /** Frames that arrived whole or in part. */
  readonly frames_received: number;
  /** Gaps in the sequence numbers of the frames that arrived. */
  readonly frames_lost: number;
  readonly frames_late: number;
  /** Frames received but superseded before they could be drawn. */
  readonly frames_skipped: number;
  /** Frames that the relay was asked not to send, as the page draws more slowly than the frame rate. */
  readonly frames_declined: number;
  /** Of frames that came in datagrams; null where none did. */
  readonly parts: PartsCounts | null;
  readonly streams_cut: number;
  readonly streams_refused: number;
  readonly streams_malformed: number;
  readonly reconnects: number;
  readonly rtt_ms: number;
  readonly clock: { readonly offset_ms: number | null; readonly error_ms: number | null };
  /** A sphere of video; null without one. */
  readonly video: VideoStats | null;
  /** Time the GPU took for its last picture, ms. */
  readonly draw_ms: number;
  /** Share of the points that is drawn: below 1 on a GPU too slow for all. */
  readonly drawn_share: number;
  /** From opening the page to its first frame drawn, ms. */
  readonly first_frame_ms: number | null;
}
