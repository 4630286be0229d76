using System;
using System.Collections.Generic;
using System.Text;

namespace Holocast.Native
{
    // An error of the native library. The message is a sentence for the user.
    sealed class HolocastException : Exception
    {
        public HolocastException(string message) : base(message)
        {
        }
    }

    // A connection to a relay. No call blocks. Only Error, Sessions, Catalog and Rays allocate;
    // call the first three when their version in HcState changes.
    sealed unsafe class Client : IDisposable
    {
        readonly ClientHandle handle;

        Client(ClientHandle handle)
        {
            this.handle = handle;
        }

        public static Client Open(string url, string certificateHash = null, string viewer = null, uint flags = 0)
        {
            Plugin.Require();
            fixed (byte* u = Utf8(url ?? ""), c = Utf8(certificateHash), v = Utf8(viewer))
            {
                var config = new HcConfig
                {
                    size = (uint)sizeof(HcConfig),
                    abiVersion = Abi.Version,
                    url = u,
                    certificateHash = c,
                    viewer = v,
                    flags = flags,
                };
                IntPtr client;
                Check(NativeMethods.hc_open(&config, &client));
                return new Client(new ClientHandle(client));
            }
        }

        // Returns the address behind a pairing link. Waits up to three seconds for the relay.
        public static string Pair(string link)
        {
            Plugin.Require();
            var buffer = new byte[4096];
            UIntPtr needed;
            fixed (byte* l = Utf8(link), b = buffer)
            {
                Check(NativeMethods.hc_pair(l, b, (UIntPtr)(uint)buffer.Length, &needed));
            }
            return Encoding.UTF8.GetString(buffer, 0, (int)needed - 1);
        }

        // Decodes a frame of one object, on this thread and without a session. words: grows as needed.
        public static HcFrame Decode(byte[] frame, ref uint[] words)
        {
            Plugin.Require();
            fixed (byte* bytes = frame)
            {
                var length = (UIntPtr)frame.Length;
                byte* data = bytes;
                while (true)
                {
                    var info = new HcFrame { size = (uint)sizeof(HcFrame) };
                    int result;
                    fixed (uint* w = words)
                    {
                        result = NativeMethods.hc_decode(&data, &length, 1, 0, w, (UIntPtr)words.Length, &info);
                    }
                    uint need = info.points * info.wordsPerPoint;
                    if (result != Abi.ErrorBuffer || need <= words.Length)
                    {
                        Check(result);
                        return info;
                    }
                    words = new uint[need];
                }
            }
        }

        // Throws an exception with the message of a failed call that has no client.
        static void Check(int result)
        {
            if (result != Abi.Ok)
            {
                string sentence = Text((byte* b, UIntPtr n, UIntPtr* needed) =>
                    NativeMethods.hc_error(IntPtr.Zero, b, n, needed));
                throw new HolocastException(sentence.Length > 0 ? sentence : "The native library failed with code "
                    + result + ".");
            }
        }

        public void Dispose()
        {
            handle.Dispose();
        }

        public bool Poll(out HcState state)
        {
            var s = new HcState { size = (uint)sizeof(HcState) };
            int result = NativeMethods.hc_poll(handle, &s);
            state = s;
            return result == Abi.Ok;
        }

        public string Error()
        {
            return Text((byte* b, UIntPtr n, UIntPtr* needed) => NativeMethods.hc_error(handle, b, n, needed));
        }

        public void Sessions(List<string> into)
        {
            into.Clear();
            string all = Text((byte* b, UIntPtr n, UIntPtr* needed) => NativeMethods.hc_sessions(handle, b, n, needed));
            foreach (string session in all.Split(new[] { '\0' }, StringSplitOptions.RemoveEmptyEntries))
            {
                into.Add(session);
            }
        }

        // Reads the catalog's tracks, growing the array as needed; returns their number.
        public int Catalog(ref HcTrack[] tracks)
        {
            for (; ; )
            {
                uint count;
                int result;
                tracks[0].size = (uint)sizeof(HcTrack);
                fixed (HcTrack* t = tracks)
                {
                    result = NativeMethods.hc_catalog(handle, t, (uint)tracks.Length, &count);
                }
                if (result == Abi.Ok)
                {
                    return (int)count;
                }
                if (result != Abi.ErrorBuffer || count <= tracks.Length)
                {
                    return 0;
                }
                tracks = new HcTrack[count];
            }
        }

        // X and Y of each pixel's ray at z = 1; null until the library has computed them, or if no
        // track has this version.
        public float[] Rays(uint camera, uint version)
        {
            UIntPtr needed;
            int result = NativeMethods.hc_rays(handle, camera, version, null, UIntPtr.Zero, &needed);
            if (result != Abi.ErrorBuffer)
            {
                return null;
            }
            var rays = new float[(int)needed];
            fixed (float* r = rays)
            {
                result = NativeMethods.hc_rays(handle, camera, version, r, needed, &needed);
            }
            return result == Abi.Ok ? rays : null;
        }

        // quality: NUL-terminated UTF-8; null selects the best.
        public bool Subscribe(uint camera, byte[] quality, uint descriptions)
        {
            fixed (byte* q = quality)
            {
                var s = new HcSubscribe { size = (uint)sizeof(HcSubscribe), camera = camera, quality = q,
                    descriptions = descriptions };
                return NativeMethods.hc_subscribe(handle, &s) == Abi.Ok;
            }
        }

        public void Unsubscribe(uint camera)
        {
            NativeMethods.hc_unsubscribe(handle, camera);
        }

        // Gaze direction in the video's coordinates, and the field of view in degrees.
        public void Gaze(float right, float up, float forward, float width, float height)
        {
            NativeMethods.hc_gaze(handle, right, up, forward, width, height);
        }

        // The viewer's eye, which chooses the qualities of cameras subscribed without one.
        public void View(HcView view)
        {
            view.size = (uint)sizeof(HcView);
            NativeMethods.hc_view(handle, &view);
        }

        // Acquires the camera's newest frame; false if there is no new one. Release it after use.
        public bool Acquire(uint camera, out HcFrame frame)
        {
            var f = new HcFrame { size = (uint)sizeof(HcFrame) };
            int result = NativeMethods.hc_frame_acquire(handle, camera, &f);
            frame = f;
            return result == Abi.Ok;
        }

        // Copies every step-th point; returns the number of points copied, or -1 if they do not
        // fit.
        public int Copy(in HcFrame frame, uint step, uint* words, int capacity)
        {
            uint points;
            int result = NativeMethods.hc_frame_copy(handle, frame.handle, step, words, (UIntPtr)(uint)capacity,
                &points);
            return result == Abi.Ok ? (int)points : -1;
        }

        // Writes the points at their pixels, with a border of Abi.GridBorder; returns false if they do not fit.
        public bool CopyGrid(in HcFrame frame, uint* words, int capacity)
        {
            UIntPtr needed;
            return NativeMethods.hc_frame_grid(handle, frame.handle, words, (UIntPtr)(uint)capacity,
                &needed) == Abi.Ok;
        }

        public void Release(in HcFrame frame, long shownUs)
        {
            NativeMethods.hc_frame_release(handle, frame.handle, shownUs);
        }

        // Acquires the 360° picture due now; false if there is no new one. Release it after use.
        public bool Acquire(out HcPicture picture)
        {
            var p = new HcPicture { size = (uint)sizeof(HcPicture) };
            int result = NativeMethods.hc_picture_acquire(handle, &p);
            picture = p;
            return result == Abi.Ok;
        }

        // Copies a plane: 0 = Y, 1 = Cb, 2 = Cr. Returns false if it does not fit.
        public bool Copy(in HcPicture picture, uint plane, byte* bytes, int capacity)
        {
            return NativeMethods.hc_picture_copy(handle, picture.handle, plane, bytes,
                (UIntPtr)(uint)capacity) == Abi.Ok;
        }

        public void Release(in HcPicture picture, long shownUs)
        {
            NativeMethods.hc_picture_release(handle, picture.handle, shownUs);
        }

        // Reads the catalog's sound tracks, growing the array as needed; returns their number.
        public int Sounds(ref HcSound[] sounds)
        {
            for (; ; )
            {
                uint count;
                int result;
                sounds[0].size = (uint)sizeof(HcSound);
                fixed (HcSound* s = sounds)
                {
                    result = NativeMethods.hc_sounds(handle, s, (uint)sounds.Length, &count);
                }
                if (result == Abi.Ok)
                {
                    return (int)count;
                }
                if (result != Abi.ErrorBuffer || count <= sounds.Length)
                {
                    return 0;
                }
                sounds = new HcSound[count];
            }
        }

        // Starts receiving a sound track; null if it is already open.
        public SoundHandle OpenSound(uint sound)
        {
            IntPtr reader;
            return NativeMethods.hc_sound_open(handle, sound, &reader) == Abi.Ok ? new SoundHandle(reader) : null;
        }

        public bool SoundStats(uint sound, out HcSoundStats stats)
        {
            var s = new HcSoundStats { size = (uint)sizeof(HcSoundStats) };
            int result = NativeMethods.hc_sound_stats(handle, sound, &s);
            stats = s;
            return result == Abi.Ok;
        }

        public HcClock Clock()
        {
            var c = new HcClock { size = (uint)sizeof(HcClock) };
            NativeMethods.hc_clock(handle, &c);
            return c;
        }

        public bool Stats(uint camera, out HcStats stats)
        {
            var s = new HcStats { size = (uint)sizeof(HcStats) };
            int result = NativeMethods.hc_stats(handle, camera, &s);
            stats = s;
            return result == Abi.Ok;
        }

        public bool Playback(HcPlaybackAction action, double positionMs, out HcPlayback playback)
        {
            var p = new HcPlayback { size = (uint)sizeof(HcPlayback) };
            int result = NativeMethods.hc_playback(handle, (uint)action, positionMs, &p);
            playback = p;
            return result == Abi.Ok;
        }

        // NUL-terminated UTF-8; null for null, which selects the library's default.
        public static byte[] Utf8(string s)
        {
            return s == null ? null : Encoding.UTF8.GetBytes(s + "\0");
        }

        delegate int Fill(byte* buffer, UIntPtr capacity, UIntPtr* needed);

        static string Text(Fill fill)
        {
            var buffer = new byte[256];
            for (; ; )
            {
                int result;
                UIntPtr needed;
                fixed (byte* b = buffer)
                {
                    result = fill(b, (UIntPtr)(uint)buffer.Length, &needed);
                }
                if (result == Abi.ErrorBuffer && (int)needed > buffer.Length)
                {
                    buffer = new byte[(int)needed];
                    continue;
                }
                int length = Math.Min((int)needed, buffer.Length);
                return result < 0 || length == 0 ? "" : Encoding.UTF8.GetString(buffer, 0, length).TrimEnd('\0');
            }
        }
    }
}
