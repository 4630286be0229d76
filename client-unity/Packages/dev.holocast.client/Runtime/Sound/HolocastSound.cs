using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    /// <summary>
    /// Plays one of a session's sound tracks through the AudioSource on this object. HolocastSession
    /// creates such an object for each microphone and for the sound of 360° video.
    /// </summary>
    [AddComponentMenu("")]
    [RequireComponent(typeof(AudioSource))]
    [DisallowMultipleComponent]
    public sealed class HolocastSound : MonoBehaviour
    {
        // Upper bound on the frames that the audio thread requests at a time: the largest DSP buffer.
        const int MaxFrames = 8192;

        static AudioClip mono, stereo;

        readonly float[] samples = new float[2 * MaxFrames];
        Client client;
        AudioSource source;
        volatile SoundHandle reader;
        bool placed;
        int rate;
        long latencyUs;
        string error = "";

        /// <summary>Number of the microphone; 65536 and up for the sound of 360° video.</summary>
        public int Number { get; private set; }

        /// <summary>Name of the microphone.</summary>
        public string Name { get; private set; } = "";

        /// <summary>
        /// True if the sound comes from this object's position rather than from everywhere.
        /// </summary>
        public bool Placed => placed;

        /// <summary>Why the track cannot be played, as a sentence; empty if it can.</summary>
        public string Error => error;

        internal bool Film => Number >= Abi.SoundFilm;

        /// <summary>Statistics. Returns false without a session.</summary>
        public bool TryGetStatistics(out HolocastSoundStatistics statistics)
        {
            statistics = default;
            if (client == null || !client.SoundStats((uint)Number, out HcSoundStats s))
            {
                return false;
            }
            statistics = new HolocastSoundStatistics(s);
            return true;
        }

        internal unsafe void Open(Client of, in HcSound track, string label)
        {
            Number = (int)track.sound;
            Name = label;
            client = of;
            rate = AudioSettings.outputSampleRate;
            AudioSettings.GetDSPBufferSize(out int length, out int buffers);
            // FMOD's average latency.
            latencyUs = 500000L * length * Mathf.Max(2 * buffers - 3, 1) / Mathf.Max(rate, 1);
            placed = (track.flags & Abi.SoundPlaced) != 0;
            source = GetComponent<AudioSource>();
            source.playOnAwake = false;
            source.loop = true;
            source.dopplerLevel = 0;
            source.spatialBlend = placed ? 1 : 0;
            bool plugin = placed && !string.IsNullOrEmpty(AudioSettings.GetSpatializerPluginName());
            source.spatialize = plugin;
            source.spatializePostEffects = plugin;
            source.clip = Ones(placed || track.channels < 2 ? 1 : 2);
            reader = of.OpenSound(track.sound);
            source.Play();
        }

        // Moves the source to the track's position.
        internal unsafe void Move(in HcSound track, bool yUp)
        {
            fixed (double* p = track.position)
            {
                transform.localPosition = placed ? Studio.Place(p[0], p[1], p[2], yUp) : Vector3.zero;
            }
        }

        // Sets the volume and updates Error. Returns true if Error changed.
        internal unsafe bool Poll(float volume)
        {
            source.volume = volume;
            if (!client.SoundStats((uint)Number, out HcSoundStats s))
            {
                return false;
            }
            string before = error;
            string why = HolocastCatalog.Text(s.error, HcSoundStats.ErrorLength);
            error = why.Length == 0 ? "" : char.ToUpperInvariant(why[0]) + why.Substring(1) + ".";
            return error != before;
        }

        void OnDisable()
        {
            SoundHandle old = reader;
            reader = null;
            old?.Dispose();
        }

        // A short loop of ones: Unity scales and pans them, and OnAudioFilterRead multiplies them by
        // the sound. A streamed clip would buffer for an unknown time.
        static AudioClip Ones(int channels)
        {
            AudioClip clip = channels == 1 ? mono : stereo;
            if (clip != null)
            {
                return clip;
            }
            const int Frames = 4096;
            clip = AudioClip.Create("Holocast sound", Frames, channels, AudioSettings.outputSampleRate, false);
            var ones = new float[Frames * channels];
            for (int i = 0; i < ones.Length; i++)
            {
                ones[i] = 1;
            }
            clip.SetData(ones, 0);
            clip.hideFlags = HideFlags.HideAndDontSave;
            if (channels == 1)
            {
                mono = clip;
            }
            else
            {
                stereo = clip;
            }
            return clip;
        }

        // Runs on the audio thread.
        unsafe void OnAudioFilterRead(float[] data, int channels)
        {
            SoundHandle from = reader;
            int frames = data.Length / channels;
            int read = 0;
            if (from != null && frames <= MaxFrames && !from.IsClosed)
            {
                try
                {
                    fixed (float* s = samples)
                    {
                        read = NativeMethods.hc_sound_read(from, s, (uint)frames, 2, (uint)rate, latencyUs);
                    }
                }
                catch (System.ObjectDisposedException)
                {
                    // Closed since.
                }
            }
            bool mix = placed || channels == 1;
            for (int i = 0, n = 0; i < frames; i++)
            {
                float left = i < read ? samples[2 * i] : 0, right = i < read ? samples[2 * i + 1] : 0;
                float both = 0.5f * (left + right);
                for (int c = 0; c < channels; c++, n++)
                {
                    data[n] *= mix ? both : c == 0 ? left : c == 1 ? right : 0;
                }
            }
        }
    }
}
