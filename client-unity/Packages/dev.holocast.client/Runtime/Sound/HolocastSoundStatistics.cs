using Holocast.Native;

namespace Holocast
{
    /// <summary>Statistics of a sound track. Counts cover the whole run.</summary>
    public readonly struct HolocastSoundStatistics
    {
        /// <summary>Sound is being played.</summary>
        public readonly bool Playing;

        /// <summary>Delay from capture to playback, ms; in a replay, from arrival to playback.</summary>
        public readonly double DelayMs;

        /// <summary>LipOffsetMs is known.</summary>
        public readonly bool HasLipOffset;

        /// <summary>Delay of sound minus that of points or pictures, ms; positive where sound is late.</summary>
        public readonly double LipOffsetMs;

        /// <summary>Sound received but not yet played, ms.</summary>
        public readonly double BufferMs;

        /// <summary>Sound played in place of missing packets, ms.</summary>
        public readonly double ConcealedMs;

        /// <summary>Packets received, and missing packets played from the copy in the next one.</summary>
        public readonly long Packets, PacketsRepeated;

        /// <summary>Packets that arrived too late, and packets refused or undecodable.</summary>
        public readonly long PacketsLate, PacketsRefused;

        /// <summary>Jumps made to correct the delay.</summary>
        public readonly long Jumps;

        /// <summary>Reads by the audio thread that found too little sound.</summary>
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
