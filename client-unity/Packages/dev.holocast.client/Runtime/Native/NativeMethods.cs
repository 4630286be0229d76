using System;
using System.Runtime.InteropServices;

namespace Holocast.Native
{
    // The functions of holocast.h. size_t is UIntPtr. Only the handle needs marshalling.
    static unsafe class NativeMethods
    {
        const string Library = "holocast";

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern uint hc_abi_version();

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_open(HcConfig* config, IntPtr* client);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern void hc_close(IntPtr client);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_poll(ClientHandle client, HcState* state);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_error(ClientHandle client, byte* buffer, UIntPtr capacity, UIntPtr* needed);

        // Overload for a null client, since a failed hc_open creates none.
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_error(IntPtr client, byte* buffer, UIntPtr capacity, UIntPtr* needed);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_sessions(ClientHandle client, byte* buffer, UIntPtr capacity, UIntPtr* needed);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_catalog(ClientHandle client, HcTrack* tracks, uint capacity, uint* count);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_rays(ClientHandle client, uint camera, uint version, float* rays, UIntPtr capacity,
            UIntPtr* needed);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_subscribe(ClientHandle client, HcSubscribe* subscribe);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_unsubscribe(ClientHandle client, uint camera);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_gaze(ClientHandle client, float right, float up, float forward, float width,
            float height);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_view(ClientHandle client, HcView* view);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_frame_acquire(ClientHandle client, uint camera, HcFrame* frame);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_frame_copy(ClientHandle client, ulong handle, uint step, uint* words,
            UIntPtr capacity, uint* points);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_frame_grid(ClientHandle client, ulong handle, uint* words, UIntPtr capacity,
            UIntPtr* needed);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_frame_release(ClientHandle client, ulong handle, long shownUs);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_picture_acquire(ClientHandle client, HcPicture* picture);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_picture_copy(ClientHandle client, ulong handle, uint plane, byte* bytes,
            UIntPtr capacity);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_picture_release(ClientHandle client, ulong handle, long shownUs);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_clock(ClientHandle client, HcClock* clock);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_stats(ClientHandle client, uint camera, HcStats* stats);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_playback(ClientHandle client, uint action, double positionMs, HcPlayback* playback);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_decode(byte** objects, UIntPtr* lengths, uint count, uint maxPoints, uint* words,
            UIntPtr capacity, HcFrame* frame);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_sounds(ClientHandle client, HcSound* sounds, uint capacity, uint* count);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_sound_open(ClientHandle client, uint sound, IntPtr* reader);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_sound_read(SoundHandle reader, float* samples, uint frames, uint channels,
            uint sampleRate, long latencyUs);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern void hc_sound_close(IntPtr reader);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_sound_stats(ClientHandle client, uint sound, HcSoundStats* stats);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        public static extern int hc_pair(byte* link, byte* buffer, UIntPtr capacity, UIntPtr* needed);
    }

    // Owns a native client. Calls in progress keep it open.
    sealed class ClientHandle : SafeHandle
    {
        public ClientHandle() : base(IntPtr.Zero, true)
        {
        }

        public ClientHandle(IntPtr client) : this()
        {
            SetHandle(client);
        }

        public override bool IsInvalid => handle == IntPtr.Zero;

        protected override bool ReleaseHandle()
        {
            NativeMethods.hc_close(handle);
            return true;
        }
    }

    // Owns the audio thread's reader of a sound track. The reader may outlive its client.
    sealed class SoundHandle : SafeHandle
    {
        public SoundHandle() : base(IntPtr.Zero, true)
        {
        }

        public SoundHandle(IntPtr reader) : this()
        {
            SetHandle(reader);
        }

        public override bool IsInvalid => handle == IntPtr.Zero;

        protected override bool ReleaseHandle()
        {
            NativeMethods.hc_sound_close(handle);
            return true;
        }
    }
}
