using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Threading;
using UnityEngine;
using UnityEngine.Stub;

namespace Holocast.Verify
{
    // A sound device: reads from the audio sources on a thread of its own, 512 frames at a time, and
    // records.
    sealed class Device : IDisposable
    {
        const int Frames = 512;
        const float Loud = 0.2f;
        // Minimum time between onsets, s.
        const double Quiet = 0.3;

        readonly Stopwatch clock = Stopwatch.StartNew();
        readonly List<float> recorded = new List<float>();
        readonly List<double> onsets = new List<double>();
        double loud = double.MinValue;
        readonly Thread thread;
        volatile bool over;

        public Device()
        {
            thread = new Thread(Run) { IsBackground = true, Priority = System.Threading.ThreadPriority.Highest };
            thread.Start();
        }

        void Run()
        {
            var data = new float[2 * Frames];
            double rate = AudioSettings.outputSampleRate;
            AudioSettings.GetDSPBufferSize(out int length, out int buffers);
            double latency = length * Math.Max(buffers - 1.5, 0.5) / rate; // as HolocastSound assumes
            for (long block = 0; !over; block++)
            {
                double begin = block * Frames / rate;
                double wait = begin - Now;
                if (wait > 0)
                {
                    Thread.Sleep(TimeSpan.FromSeconds(wait));
                }
                Speaker.Read(data);
                lock (recorded)
                {
                    recorded.AddRange(data);
                    for (int i = 0; i < Frames; i++)
                    {
                        if (Math.Abs(data[2 * i]) >= Loud)
                        {
                            double at = begin + latency + i / rate;
                            if (at > loud + Quiet)
                            {
                                onsets.Add(at);
                            }
                            loud = at;
                        }
                    }
                }
            }
        }

        // Time since the device was opened, s.
        public double Now => clock.Elapsed.TotalSeconds;

        // Times, as of Now, at which loud sound begins on the left.
        public double[] Onsets()
        {
            lock (recorded)
            {
                return onsets.ToArray();
            }
        }

        // Samples of each channel so far.
        public int Length
        {
            get
            {
                lock (recorded)
                {
                    return recorded.Count / 2;
                }
            }
        }

        // The left channel from a sample on.
        public float[] Left(int from)
        {
            lock (recorded)
            {
                var left = new float[recorded.Count / 2 - from];
                for (int i = 0; i < left.Length; i++)
                {
                    left[i] = recorded[2 * (from + i)];
                }
                return left;
            }
        }

        public void Dispose()
        {
            over = true;
            thread.Join();
        }
    }

    // End-to-end tests of sound.
    static class SoundTests
    {
        const int Rate = 48000;

        static string Url(int port, string session) => "moqt://127.0.0.1:" + port + "/" + session;

        static string F(double v) => v.ToString("F1", CultureInfo.InvariantCulture);

        static void Ffmpeg(params string[] arguments)
        {
            var start = new ProcessStartInfo("ffmpeg");
            start.Environment.Remove("LD_LIBRARY_PATH");
            foreach (string argument in new[] { "-v", "error", "-y" }.Concat(arguments))
            {
                start.ArgumentList.Add(argument);
            }
            using (Process ffmpeg = Process.Start(start))
            {
                ffmpeg.WaitForExit();
                Check.That(ffmpeg.ExitCode == 0, "ffmpeg failed: " + string.Join(" ", arguments));
            }
        }

        // A film of 20 s with stereo noise, prepared in tiles. Returns the folder.
        static string Tour(string folder)
        {
            string film = Path.Combine(folder, "film.mp4"), tour = Path.Combine(folder, "tour");
            Ffmpeg("-f", "lavfi", "-i", "nullsrc=s=480x240:r=10:d=20,format=yuv420p,geq=lum='30+190*X/W':cb=128:cr=128",
                "-f", "lavfi", "-i", "anoisesrc=d=20:c=pink:a=0.5:s=1:r=48000", "-f", "lavfi", "-i",
                "anoisesrc=d=20:c=brown:a=0.5:s=2:r=48000", "-filter_complex", "[1:a][2:a]amerge=inputs=2[a]", "-map",
                "0:v", "-map", "[a]", "-c:v", "libx264", "-preset", "ultrafast", "-qp", "20", "-c:a", "libopus",
                "-b:a", "128k", "-shortest", film);
            return tour;
        }

        // Left channel of a sound file as FFmpeg decodes it.
        static float[] Decode(string path, string folder)
        {
            string raw = Path.Combine(folder, "decoded.f32");
            Ffmpeg("-c:a", "libopus", "-i", path, "-af", "pan=mono|c0=c0", "-f", "f32le", raw);
            byte[] bytes = File.ReadAllBytes(raw);
            var samples = new float[bytes.Length / 4];
            Buffer.BlockCopy(bytes, 0, samples, 0, 4 * samples.Length);
            return samples;
        }

        // Samples that are compared.
        const int Compared = Rate / 2;

        // Best signal-to-noise ratio, dB, of the beginning of `heard` against any part of `source`.
        static double Snr(float[] heard, float[] source)
        {
            const int Probe = 256;
            int best = -1;
            double least = double.MaxValue;
            for (int at = 0; at + Compared < source.Length; at++)
            {
                double noise = 0;
                for (int i = 0; i < Probe && noise < least; i++)
                {
                    double d = heard[i] - source[at + i];
                    noise += d * d;
                }
                if (noise < least)
                {
                    (least, best) = (noise, at);
                }
            }
            double signal = 0, error = 0;
            for (int i = 0; i < Compared; i++)
            {
                double d = heard[i] - source[best + i];
                signal += source[best + i] * source[best + i];
                error += d * d;
            }
            return 10 * Math.Log10(signal / Math.Max(error, 1e-20));
        }

        static HolocastSound UntilSound(Stage stage, string what)
        {
            stage.Until(what, () => stage.Session.Sounds.Count > 0
                && stage.Session.Sounds[0].TryGetStatistics(out HolocastSoundStatistics s) && s.Playing);
            Speaker.Refresh();
            return stage.Session.Sounds[0];
        }

        // Waits for a source, so that the device reads from it.
        static void UntilSource(Stage stage)
        {
            stage.Until("a source of sound", () => stage.Session.Sounds.Count > 0);
            Speaker.Refresh();
        }

        static HolocastSoundStatistics Statistics(HolocastSound sound)
        {
            Check.That(sound.TryGetStatistics(out HolocastSoundStatistics s), "no statistics of sound");
            return s;
        }

        static void LipOffset(HolocastSound sound, string of)
        {
            HolocastSoundStatistics s = Statistics(sound);
            Check.That(s.HasLipOffset && s.LipOffsetMs > -45 && s.LipOffsetMs < 125, of + ": lip offset "
                + F(s.LipOffsetMs) + " ms, known: " + s.HasLipOffset);
        }

        // Compares the sound of a prepared film with FFmpeg's: live, after a pause and after a seek.
        public static void Film(Lab lab)
        {
            string folder = Path.Combine(Path.GetTempPath(), "holocast-verify-sound-"
                + Process.GetCurrentProcess().Id);
            Directory.CreateDirectory(folder);
            try
            {
                string tour = Tour(folder);
                lab.Start("holocast", "prepare", Path.Combine(folder, "film.mp4"), tour, "--stereo", "mono",
                    "--qualities", "1", "--preset", "ultrafast").MustEnd();
                float[] source = Decode(Path.Combine(tour, "audio.mp4"), folder);
                int port = Lab.FreePort();
                lab.Relay(port);
                lab.Start("capture-server", "--source", "tiles:" + tour, "--http", "", Url(port, "tour"));
                var stage = new Stage(Url(port, "tour"));
                HolocastSphere sphere = stage.Hologram.AddComponent<HolocastSphere>();
                using (var device = new Device())
                {
                    stage.Until("a picture", () => sphere.Shows);
                    UntilSource(stage);
                    HolocastSound sound = UntilSound(stage, "the film's sound");
                    double live = Best(stage, device, source, "the film's sound");
                    LipOffset(sound, "live");
                    stage.Until("the sound in the HUD", () => stage.Hud.Text.Contains("lip offset"));
                    Console.WriteLine("      SNR against FFmpeg " + F(live) + " dB; " + Describe(sound));

                    stage.Until("the recording", () => stage.Playback.Available);
                    stage.Playback.Pause();
                    stage.Until("silence while paused", () => !Statistics(sound).Playing);
                    stage.Playback.Seek(5);
                    stage.Playback.Play();
                    UntilSound(stage, "sound after a seek");
                    double sought = Best(stage, device, source, "sound after a seek");
                    LipOffset(sound, "after a seek");
                    Console.WriteLine("      after a seek " + F(sought) + " dB; " + Describe(sound));
                    stage.Session.Sound = false;
                    stage.Until("no source of sound", () => stage.Session.Sounds.Count == 0);
                }
            }
            finally
            {
                Directory.Delete(folder, true);
            }
        }

        // Waits until a half-second of sound equals the source. At first, splices that correct the delay
        // prevent this.
        static double Best(Stage stage, Device device, float[] source, string what)
        {
            double best = double.MinValue;
            int done = device.Length;
            try
            {
                stage.Until(what + " to equal FFmpeg's", () =>
                {
                    if (device.Length < done + Compared)
                    {
                        return false;
                    }
                    best = Math.Max(best, Snr(device.Left(done), source));
                    done = device.Length;
                    return best > 50;
                });
            }
            catch
            {
                Console.WriteLine("      best " + F(best) + " dB; " + Describe(stage.Session.Sounds[0]));
                throw;
            }
            return best;
        }

        static string Describe(HolocastSound sound)
        {
            HolocastSoundStatistics s = Statistics(sound);
            return "delay " + F(s.DelayMs) + " ms, buffer " + F(s.BufferMs) + ", concealed " + F(s.ConcealedMs)
                + ", lip offset " + F(s.LipOffsetMs) + ", " + s.Packets + " packets, late " + s.PacketsLate
                + ", refused " + s.PacketsRefused + ", jumps " + s.Jumps + ", starved " + s.Starved;
        }

        // A microphone of a live hologram, in step with the points.
        public static void Microphone(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            lab.Start("capture-server", "--source", "synthetic", "--fps", "10", "--audio", "synthetic", "--http", "",
                Url(port, "demo"));
            var stage = new Stage(Url(port, "demo"));
            using (var device = new Device())
            {
                stage.UntilShown("points", 30);
                UntilSource(stage);
                HolocastSound sound = UntilSound(stage, "the microphone's sound");
                int from = device.Length;
                stage.Until("audible sound", () => device.Left(from).Any(v => Math.Abs(v) > 0.01));
                stage.Until("the lip offset", () => Statistics(sound).HasLipOffset
                    && Math.Abs(Statistics(sound).LipOffsetMs) < 45);
                LipOffset(sound, "live");
                Console.WriteLine("      " + sound.Name + ": " + Describe(sound) + "; frame delay p50 "
                    + F(stage.Statistics().FrameDelayP50) + " ms");
            }
        }

        // Beeps of the test publisher, which begin at whole seconds, against the frames on display. Independent
        // of the client's own figures. Live, on a busy machine, in a shared replay, and after a seek.
        public static void InStep(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            string[] small = { "--width", "296", "--height", "266", "--fps", "10", "--sound" };
            Running publisher = lab.Start("publisher",
                small.Concat(new[] { "datagram", "--timeout", "600s", Url(port, "beeps") }).ToArray());
            using (var device = new Device())
            {
                var stage = new Stage(Url(port, "beeps"));
                UntilSource(stage);
                Offsets(stage, device, "live");
                using (new Burners(2))
                {
                    Offsets(stage, device, "on a busy machine");
                }
                publisher.Kill();
            }
            Loop.Clear();
            string folder = Path.Combine(Path.GetTempPath(), "holocast-verify-beeps-"
                + Process.GetCurrentProcess().Id);
            Directory.CreateDirectory(folder);
            try
            {
                string take = Path.Combine(folder, "take.mcap");
                lab.Start("publisher", new[] { "--record", take, "--frames", "200" }.Concat(small).Append("stream")
                    .ToArray()).MustEnd();
                lab.Start("holocast", "replay", take, Url(port, "replay"), "--loop");
                using (var device = new Device())
                {
                    var stage = new Stage(Url(port, "replay"));
                    UntilSource(stage);
                    Offsets(stage, device, "replayed");
                    stage.Until("the recording", () => stage.Playback.Available && stage.Playback.Duration > 15);
                    stage.Playback.Seek(2);
                    stage.Playback.Play();
                    stage.Until("the seek", () => !stage.Playback.IsLive && stage.Playback.Position >= 2);
                    Offsets(stage, device, "after a seek");
                }
            }
            finally
            {
                Directory.Delete(folder, true);
            }
        }

        // Waits until five beeps in a row are in step with the frames around them: their median within 20 ms,
        // and each as ITU-R BT.1359 accepts.
        static void Offsets(Stage stage, Device device, string when)
        {
            const int Wanted = 5;
            const double Around = 0.5; // s
            double begin = device.Now;
            var shown = new List<(double At, double Captured)>();
            uint sequence = 0;
            var offsets = new List<double>();
            int measured = 0;
            bool Measured()
            {
                if (stage.Points.Views.Count > 0 && stage.Points.Views[0].Sequence != sequence)
                {
                    sequence = stage.Points.Views[0].Sequence;
                    shown.Add((device.Now, stage.Points.Views[0].CapturedUs / 1e6));
                }
                if (!stage.Playback.IsLive && !stage.Playback.Playing)
                {
                    stage.Playback.Seek(2); // it ended
                    stage.Playback.Play();
                }
                double[] onsets = device.Onsets().Where(o => o > begin && o < device.Now - Around).ToArray();
                for (; measured < onsets.Length; measured++)
                {
                    double heard = onsets[measured];
                    double[] shifts = shown.Where(f => Math.Abs(f.At - heard) < Around)
                        .Select(f => f.At - f.Captured).OrderBy(f => f).ToArray();
                    if (shifts.Length > 0)
                    {
                        double captured = heard - shifts[shifts.Length / 2];
                        offsets.Add(1000 * (captured - Math.Round(captured)));
                    }
                }
                double[] last = offsets.Skip(offsets.Count - Wanted).OrderBy(o => o).ToArray();
                return last.Length == Wanted && last[0] >= -45 && last[Wanted - 1] <= 125
                    && Math.Abs(last[Wanted / 2]) <= 20;
            }
            try
            {
                stage.Until("sound in step with points " + when, Measured);
            }
            finally
            {
                Console.WriteLine("      " + when + ": " + string.Join(" ", offsets.Select(F)) + " ms; "
                    + Describe(stage.Session.Sounds[0]));
            }
        }
    }

    // Threads that keep the machine busy.
    sealed class Burners : IDisposable
    {
        readonly Thread[] threads;
        volatile bool over;

        public Burners(int count)
        {
            threads = Enumerable.Range(0, count).Select(_ => new Thread(() =>
            {
                while (!over)
                {
                }
            }) { IsBackground = true }).ToArray();
            foreach (Thread t in threads)
            {
                t.Start();
            }
        }

        public void Dispose()
        {
            over = true;
            foreach (Thread t in threads)
            {
                t.Join();
            }
        }
    }
}
