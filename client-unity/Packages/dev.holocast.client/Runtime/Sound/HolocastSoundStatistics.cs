using Holocast.Native;

namespace Holocast
{
    /// <summary>Statistics of a track of sound. Counts cover the whole run.</summary>
    public readonly struct HolocastSoundStatistics
    {
        /// <summary>Sound is being played.</summary>
        public readonly bool Playing;

        /// <summary>Capture to sound, ms; in a replay, arrival to sound.</summary>
        public readonly double DelayMs;

        /// <summary>LipOffsetMs is known.</summary>
        public readonly bool HasLipOffset;

        /// <summary>Delay of sound minus that of points or pictures, ms; positive where sound is late.</summary>
        public readonly double LipOffsetMs;

        /// <summary>Sound received and not played yet, ms.</summary>
        public readonly double BufferMs;

        /// <summary>Sound played in place of missing packets, ms.</summary>
        public readonly double ConcealedMs;

        /// <summary>Packets received, and missing ones played from their repetition.</summary>
        public readonly long Packets, PacketsRepeated;

        /// <summary>Packets after their time, and refused or undecodable ones.</summary>
        public readonly long PacketsLate, PacketsRefused;

        /// <summary>Corrections of the delay by a jump.</summary>
        public readonly long Jumps;

        /// <summary>Times the audio thread found too little sound.</summary>
        public readonly long Starved;

        internal HolocastSoundStatistics(in HcSoundStats s)
        {
            Playing = (s.flags & Abi.SoundPlaying) != 0;
            DelayMs = s.delayMs;
            HasLipOffset = (s.flags & Abi.SoundLipOffset) != 0;
            LipOffsetMs = s.lipOffsetMs;
            BufferMs = s.bufferMs;
            ConcealedMs = s.concealedMs;
            Packets = (long)s.packets;
            PacketsRepeated = (long)s.packetsRepeated;
            PacketsLate = (long)s.packetsLate;
            PacketsRefused = (long)s.packetsRefused;
            Jumps = (long)s.jumps;
            Starved = (long)s.starved;
        }
    }
}
