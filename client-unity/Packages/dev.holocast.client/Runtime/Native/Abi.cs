using System.Runtime.InteropServices;

namespace Holocast.Native
{
    // Constants and structs of holocast.h, in the header's order. All structs are blittable;
    // client-unity/verify compares sizes and offsets with the C compiler's.

    static class Abi
    {
        public const uint Version = 8;

        public const int Ok = 0;
        public const int Empty = 1;
        public const int ErrorVersion = -2;
        public const int ErrorBuffer = -3;
        public const int ErrorUrl = -6;

        public const uint AllCameras = uint.MaxValue;
        public const uint Sphere = uint.MaxValue - 1;

        public const uint MatrixBt709 = 0;
        public const uint MatrixBt601 = 1;

        public const uint PictureFullRange = 1;
        public const uint PictureStereo = 2;
        public const uint PictureReplayed = 4;

        public const uint StateReplayed = 1;
        public const uint StateRecording = 2;
        public const uint StateNoCamera = 4;
        public const uint StateSphere = 8;
        public const uint StateSomeSessions = 16;
        public const uint StateUndecodable = 32;

        public const uint NoReceipts = 1;
        public const uint Insecure = 2;
        public const uint ListSessions = 4;
        public const uint PlatformVideo = 8;

        public const uint TrackSubscribed = 1;

        public const uint LayoutA = 1;
        public const uint LayoutW = 4;

        public const int GridBorder = 4;

        public const long NotShown = 0;
        public const long ShownNow = -1;

        public const uint FrameReplayed = 1;
        public const uint FrameSubject = 2;
        public const uint FramePartial = 4;

        public const uint PlaybackAvailable = 1;
        public const uint PlaybackPlaying = 2;
        public const uint PlaybackIsLive = 4;
        public const uint PlaybackWaiting = 8;

        public const uint SoundFilm = 0x10000;

        public const uint SoundPlaced = 2;
        public const uint SoundPlaying = 4;
        public const uint SoundDelay = 8;
        public const uint SoundLipOffset = 16;
    }

    enum HcPhase : uint
    {
        Connecting = 0,
        Unreachable = 1,
        Certificate = 2,
        Refused = 3,
        Lost = 4,
        Listing = 5,
        Waiting = 6,
        Live = 7,
        Silent = 8,
        Ended = 9,
    }

    enum HcPlaybackAction : uint
    {
        Query = 0,
        Play = 1,
        Pause = 2,
        Seek = 3,
        Live = 4,
    }

    [StructLayout(LayoutKind.Sequential)]
    unsafe struct HcConfig
    {
        public uint size;
        public uint abiVersion;
        public byte* url;
        public byte* certificateHash;
        public byte* viewer;
        public uint flags;
        public uint deliveryTimeoutMs;
        public uint decodeThreads;
        public uint reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct HcState
    {
        public uint size;
        public HcPhase phase;
        public uint flags;
        public uint catalogVersion;
        public uint sessionsVersion;
        public uint errorVersion;
        public uint cameras;
        public uint sessions;
        public uint reconnects;
        public uint reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    unsafe struct HcTrack
    {
        public const int QualityLength = 32;
        public const int CameraNameLength = 64;

        public uint size;
        public uint camera;
        public uint layout;
        public uint descriptions;
        public uint width;
        public uint height;
        public uint maxPoints;
        public uint deliveryTimeoutMs;
        public double framerate;
        public ulong bitrate;
        public double depthError;
        public double fx;
        public double fy;
        public double cx;
        public double cy;
        public fixed double rotation[9];
        public fixed double translation[3];
        public uint depthMin;
        public uint depthMax;
        public uint flags;
        public uint version;
        public fixed byte quality[QualityLength];
        public fixed byte cameraName[CameraNameLength];
    }

    [StructLayout(LayoutKind.Sequential)]
    unsafe struct HcSubscribe
    {
        public uint size;
        public uint camera;
        public byte* quality;
        public uint descriptions;
        public uint reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    unsafe struct HcView
    {
        public uint size;
        public uint reserved;
        public fixed double rotation[9];
        public fixed double translation[3];
        public double width;
        public double height;
        public double maxBitrate;
    }

    [StructLayout(LayoutKind.Sequential)]
    unsafe struct HcFrame
    {
        public uint size;
        public uint camera;
        public ulong handle;
        public uint sequence;
        public uint layout;
        public uint wordsPerPoint;
        public uint points;
        public uint descriptions;
        public uint descriptionsTotal;
        public uint width;
        public uint height;
        public uint bytes;
        public uint decodeUs;
        public ulong capturedUs;
        public ulong deviceUs;
        public ulong arrivedUs;
        public ulong decodedUs;
        public long delayUs;
        public uint flags;
        public uint trackVersion;
        public fixed float middle[3];
        public float floor;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct HcPicture
    {
        public uint size;
        public uint flags;
        public ulong handle;
        public uint width;
        public uint height;
        public uint matrix;
        public uint decodeUs;
        public ulong capturedUs;
        public ulong arrivedUs;
        public ulong decodedUs;
        public float yaw;
        public float pitch;
        public float roll;
        public uint reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct HcClock
    {
        public uint size;
        public uint source;
        public ulong localUs;
        public ulong relayUs;
        public ulong errorUs;
        public ulong rttUs;
        public ulong minRttUs;
        public uint samples;
        public uint steps;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct HcStats
    {
        public uint size;
        public uint cameras;
        public double shownFps;
        public double fps;
        public double delayP50Ms;
        public double delayP95Ms;
        public double delayP99Ms;
        public double shownP50Ms;
        public double shownP95Ms;
        public double shownP99Ms;
        public double jitterMs;
        public double mbitPerS;
        public double pointsPerFrame;
        public double decodeMs;
        public double density;
        public double firstFrameMs;
        public double runFps;
        public double runP50Ms;
        public double runP95Ms;
        public double runP99Ms;
        public ulong frames;
        public ulong framesShown;
        public ulong framesLost;
        public ulong framesLate;
        public ulong framesDuplicate;
        public ulong framesPartial;
        public ulong framesSkipped;
        public ulong framesDamaged;
        public ulong descriptionsLate;
        public ulong subgroupsReset;
        public ulong publisherRestarts;
        public ulong bytes;
        public ulong receipts;
        public ulong memoryBytes;
        public ulong framesRepaired;
        public ulong framesAbandoned;
        public ulong partsLost;
        public ulong repairRequests;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct HcPlayback
    {
        public uint size;
        public uint flags;
        public double durationMs;
        public double positionMs;
    }

    [StructLayout(LayoutKind.Sequential)]
    unsafe struct HcSound
    {
        public const int NameLength = 64;

        public uint size;
        public uint sound;
        public uint flags;
        public uint channels;
        public fixed double position[3];
        public fixed byte name[NameLength];
    }

    [StructLayout(LayoutKind.Sequential)]
    unsafe struct HcSoundStats
    {
        public const int ErrorLength = 192;

        public uint size;
        public uint flags;
        public double delayMs;
        public double lipOffsetMs;
        public double bufferMs;
        public double concealedMs;
        public ulong packets;
        public ulong packetsRepeated;
        public ulong packetsLate;
        public ulong packetsRefused;
        public ulong jumps;
        public ulong starved;
        public fixed byte error[ErrorLength];
    }
}
