using Holocast.Native;

namespace Holocast
{
    /// <summary>
    /// Statistics, defined as in the other Holocast viewers. Frame delay is the time from capture until a
    /// frame is decoded or shown, both on the relay's clock. Rates cover the last second, percentiles and
    /// means the last five seconds, counts the whole run.
    /// </summary>
    public readonly struct HolocastStatistics
    {
        /// <summary>Distinct frames shown per second, averaged over cameras.</summary>
        public readonly double Fps;

        /// <summary>Distinct frames decoded per second, averaged over cameras.</summary>
        public readonly double ReceivedFps;

        /// <summary>Capture to display, ms; in a replay, arrival to display.</summary>
        public readonly double FrameDelayP50, FrameDelayP95, FrameDelayP99;

        /// <summary>Delay from capture to decoding, ms.</summary>
        public readonly double DecodedDelayP50, DecodedDelayP95, DecodedDelayP99;

        /// <summary>Delay from capture to decoding over the whole run, ms.</summary>
        public readonly double RunDelayP50, RunDelayP95;

        /// <summary>Media bit rate received, Mbit/s.</summary>
        public readonly double MbitPerSecond;

        /// <summary>Mean points per frame of one camera.</summary>
        public readonly double PointsPerFrame;

        /// <summary>Mean decoding time per frame, ms.</summary>
        public readonly double DecodeMs;

        /// <summary>360° video: share of the viewport covered by tiles, 0 to 1.</summary>
        public readonly double TileHits;

        /// <summary>Time from connecting to the first decoded frame, ms; 0 = none yet.</summary>
        public readonly double FirstFrameMs;

        /// <summary>Distinct frames decoded, and distinct frames shown, over all cameras.</summary>
        public readonly long Frames, FramesShown;

        /// <summary>
        /// Frames missing from the sequence, received after a later one, skipped because decoding fell
        /// behind, and undecodable.
        /// </summary>
        public readonly long FramesLost, FramesLate, FramesSkipped, FramesDamaged;

        /// <summary>
        /// Datagram delivery: frames completed by fetching lost parts, frames dropped as incomplete, and
        /// their missing parts.
        /// </summary>
        public readonly long FramesRepaired, FramesAbandoned, PartsLost;

        /// <summary>Receipts sent.</summary>
        public readonly long Receipts;

        /// <summary>Bytes of frames and objects held by the native library.</summary>
        public readonly long MemoryBytes;

        /// <summary>Error bound of the relay clock estimate, ms; negative = unknown.</summary>
        public readonly double ClockErrorMs;

        /// <summary>Smoothed round-trip time to the relay, ms.</summary>
        public readonly double RoundTripMs;

        /// <summary>True for a recording: delays count from arrival.</summary>
        public readonly bool Replayed;

        internal HolocastStatistics(in HcStats s, in HcClock clock, bool replayed)
        {
            Fps = s.shownFps;
            ReceivedFps = s.fps;
            FrameDelayP50 = s.shownP50Ms;
            FrameDelayP95 = s.shownP95Ms;
            FrameDelayP99 = s.shownP99Ms;
            DecodedDelayP50 = s.delayP50Ms;
            DecodedDelayP95 = s.delayP95Ms;
            DecodedDelayP99 = s.delayP99Ms;
            RunDelayP50 = s.runP50Ms;
            RunDelayP95 = s.runP95Ms;
            MbitPerSecond = s.mbitPerS;
            PointsPerFrame = s.pointsPerFrame;
            TileHits = s.density;
            DecodeMs = s.decodeMs;
            FirstFrameMs = s.firstFrameMs;
            Frames = (long)s.frames;
            FramesShown = (long)s.framesShown;
            FramesLost = (long)s.framesLost;
            FramesLate = (long)s.framesLate;
            FramesSkipped = (long)s.framesSkipped;
            FramesDamaged = (long)s.framesDamaged;
            FramesRepaired = (long)s.framesRepaired;
            FramesAbandoned = (long)s.framesAbandoned;
            PartsLost = (long)s.partsLost;
            Receipts = (long)s.receipts;
            MemoryBytes = (long)s.memoryBytes;
            ClockErrorMs = clock.source == 0 ? -1 : clock.errorUs / 1000.0;
            RoundTripMs = clock.rttUs / 1000.0;
            Replayed = replayed;
        }
    }
}
