using Holocast.Native;

namespace Holocast
{
    /// <summary>
    /// What a viewer measures, as the other Holocast viewers do: frame delay is the moment a frame
    /// is decoded, or shown, less its capture time, both on the relay's clock. Rates are of the last
    /// second, percentiles and means of the last five, counts of the whole run.
    /// </summary>
    public readonly struct HolocastStatistics
    {
        /// <summary>Distinct frames shown per second, mean of the cameras.</summary>
        public readonly double Fps;

        /// <summary>Distinct frames that arrived and were decoded per second, mean of the cameras.</summary>
        public readonly double ReceivedFps;

        /// <summary>Capture to shown, ms; in a replay arrival to shown.</summary>
        public readonly double FrameDelayP50, FrameDelayP95, FrameDelayP99;

        /// <summary>Capture to decoded, ms.</summary>
        public readonly double DecodedDelayP50, DecodedDelayP95, DecodedDelayP99;

        /// <summary>Capture to decoded of the whole run, ms.</summary>
        public readonly double RunDelayP50, RunDelayP95;

        public readonly double MbitPerSecond;

        /// <summary>Of one camera's frame.</summary>
        public readonly double PointsPerFrame;

        public readonly double DecodeMs;

        /// <summary>Of 360° video: share of the view that tiles show, 0 to 1.</summary>
        public readonly double TileHits;

        /// <summary>From connecting to the first decoded frame, ms; 0 = none so far.</summary>
        public readonly double FirstFrameMs;

        /// <summary>Distinct frames decoded, of all cameras; of these, shown.</summary>
        public readonly long Frames, FramesShown;

        /// <summary>Gaps in the sequence numbers; frames after a later one; not decoded in time; not decodable.</summary>
        public readonly long FramesLost, FramesLate, FramesSkipped, FramesDamaged;

        /// <summary>Of frames in datagrams: those that fetched parts made whole; those given up; parts lost with them.</summary>
        public readonly long FramesRepaired, FramesAbandoned, PartsLost;

        public readonly long Receipts;

        /// <summary>Bytes that the native library holds in frames.</summary>
        public readonly long MemoryBytes;

        /// <summary>Bound of the error of the relay's clock as estimated here, ms; negative = unknown.</summary>
        public readonly double ClockErrorMs;

        public readonly double RoundTripMs;

        /// <summary>Delays count from arrival, since captures are of the past.</summary>
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
