using System;
using System.Collections.Generic;
using System.Reflection;

namespace UnityEngine
{
    public class AudioListener : Behaviour
    {
    }

    public class AudioClip : Object
    {
        internal float[] data;

        public int samples { get; private set; }
        public int channels { get; private set; }

        public static AudioClip Create(string name, int lengthSamples, int channels, int frequency, bool stream)
        {
            return new AudioClip { name = name, samples = lengthSamples, channels = channels,
                data = new float[lengthSamples * channels] };
        }

        public bool SetData(float[] data, int offsetSamples)
        {
            data.CopyTo(this.data, offsetSamples * channels);
            return true;
        }
    }

    public class AudioSource : Behaviour
    {
        internal bool playing;

        public AudioClip clip { get; set; }
        public bool playOnAwake { get; set; } = true;
        public bool loop { get; set; }
        public float volume { get; set; } = 1;
        public float spatialBlend { get; set; }
        public float dopplerLevel { get; set; } = 1;
        public bool spatialize { get; set; }
        public bool spatializePostEffects { get; set; }

        public void Play()
        {
            playing = clip != null;
        }
    }

    public static class AudioSettings
    {
        public static int outputSampleRate { get; set; } = 48000;

        public static void GetDSPBufferSize(out int bufferLength, out int numBuffers)
        {
            bufferLength = 512;
            numBuffers = 2;
        }

        public static string GetSpatializerPluginName() => "";
    }
}

namespace UnityEngine.Stub
{
    // The audio thread: sources in stereo, without panning. For tests; Unity has no such class.
    public static class Speaker
    {
        delegate void Filter(float[] data, int channels);

        // Sources found by Refresh, with their filters.
        static readonly List<(AudioSource Source, Filter Filter)> playing = new List<(AudioSource, Filter)>();
        static float[] one = new float[0];

        // Looks for sources, on the main thread.
        public static void Refresh()
        {
            var found = new List<(AudioSource, Filter)>();
            foreach (AudioSource source in Object.FindObjectsByType<AudioSource>(FindObjectsSortMode.None))
            {
                foreach (Component c in source.gameObject.components)
                {
                    MethodInfo m = c.GetType().GetMethod("OnAudioFilterRead",
                        BindingFlags.Instance | BindingFlags.NonPublic | BindingFlags.Public);
                    if (m != null && source.playing)
                    {
                        found.Add((source, (Filter)Delegate.CreateDelegate(typeof(Filter), c, m)));
                    }
                }
            }
            lock (playing)
            {
                playing.Clear();
                playing.AddRange(found);
            }
        }

        // Renders the next stereo frames of all sources.
        public static void Read(float[] data)
        {
            Array.Clear(data, 0, data.Length);
            lock (playing)
            {
                if (one.Length != data.Length)
                {
                    one = new float[data.Length];
                }
                foreach ((AudioSource source, Filter filter) in playing)
                {
                    if (source.destroyed)
                    {
                        continue;
                    }
                    for (int i = 0; i < one.Length; i++)
                    {
                        one[i] = source.clip.data[i % source.clip.data.Length] * source.volume;
                    }
                    filter(one, 2);
                    for (int i = 0; i < one.Length; i++)
                    {
                        data[i] += one[i];
                    }
                }
            }
        }
    }
}
