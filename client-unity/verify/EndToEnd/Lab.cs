using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Http;
using System.Net.Sockets;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using Holocast.Native;
using UnityEngine;
using UnityEngine.Stub;

namespace Holocast.Verify
{
    sealed class Failed : Exception
    {
        public Failed(string message) : base(message)
        {
        }
    }

    // Runs the programs of the repository.
    sealed class Lab : IDisposable
    {
        public static string Root, Binaries, Library, Scratch;

        readonly List<Running> programs = new List<Running>();

        // Makes the runtime load the native library that cargo built.
        public static void UseLibrary(string path)
        {
            Library = path;
            NativeLibrary.SetDllImportResolver(typeof(HolocastSession).Assembly, (name, assembly, search) =>
                name == "holocast" ? NativeLibrary.Load(path) : IntPtr.Zero);
        }

        public Running Start(string program, params string[] arguments)
        {
            var p = new Running(Path.Combine(Binaries, program), arguments);
            programs.Add(p);
            return p;
        }

        static int nextPort = new System.Random().Next(20000);

        // A port that is free for both UDP and TCP. As it is below the ephemeral range, no outgoing connection can take
        // it before the program under test does.
        public static int FreePort()
        {
            for (; ; )
            {
                int port = 10000 + nextPort++ % 20000;
                try
                {
                    var tcp = new TcpListener(IPAddress.Loopback, port);
                    tcp.Start();
                    tcp.Stop();
                    using (new UdpClient(new IPEndPoint(IPAddress.Loopback, port)))
                    {
                        return port;
                    }
                }
                catch (SocketException)
                {
                    // Try the next port.
                }
            }
        }

        public Running Relay(int port, params string[] more)
        {
            string address = "127.0.0.1:" + port;
            Running relay = Start("relay", new[] { "--listen", address, "--http", address }.Concat(more).ToArray());
            using (var http = new HttpClient { Timeout = TimeSpan.FromSeconds(10) })
            {
                Until("the relay's start", () =>
                {
                    relay.MustRun();
                    try
                    {
                        return http.GetAsync("http://" + address + "/healthz").Result.IsSuccessStatusCode;
                    }
                    catch (AggregateException)
                    {
                        return false;
                    }
                });
            }
            return relay;
        }

        // Hang guard for every wait, seconds; generous, since test machines may be busy.
        public const double HangGuard = 180;

        public static void Until(string what, Func<bool> happened)
        {
            var clock = Stopwatch.StartNew();
            while (!happened())
            {
                if (clock.Elapsed.TotalSeconds > HangGuard)
                {
                    throw new Failed("timed out after " + HangGuard + " s waiting for " + what);
                }
                Thread.Sleep(5);
            }
        }

        public void Dispose()
        {
            Loop.Clear();
            foreach (Running p in programs)
            {
                p.Kill();
            }
        }

        public string Output()
        {
            return string.Join("\n", programs.Select(p => p.ToString()));
        }
    }

    // A program under test, killed at the end of the test.
    sealed class Running
    {
        readonly Process process;
        readonly StringBuilder output = new StringBuilder();
        readonly string name;

        public Running(string path, string[] arguments)
        {
            name = Path.GetFileName(path);
            var start = new ProcessStartInfo(path) { RedirectStandardOutput = true, RedirectStandardError = true };
            start.Environment.Remove("LD_LIBRARY_PATH");
            foreach (string a in arguments)
            {
                start.ArgumentList.Add(a);
            }
            process = Process.Start(start);
            process.OutputDataReceived += Take;
            process.ErrorDataReceived += Take;
            process.BeginOutputReadLine();
            process.BeginErrorReadLine();
        }

        void Take(object _, DataReceivedEventArgs e)
        {
            lock (output)
            {
                if (e.Data != null)
                {
                    output.Append(e.Data).Append('\n');
                }
            }
        }

        public string Text
        {
            get
            {
                lock (output)
                {
                    return output.ToString();
                }
            }
        }

        public void MustRun()
        {
            if (process.HasExited)
            {
                throw new Failed(name + " ended: " + Text);
            }
        }

        public bool HasEnded => process.HasExited;

        public string MustEnd()
        {
            if (!process.WaitForExit(2 * (int)Lab.HangGuard * 1000))
            {
                throw new Failed(name + " does not exit: " + Text);
            }
            process.WaitForExit();
            if (process.ExitCode != 0)
            {
                throw new Failed(name + " failed: " + Text);
            }
            return Text;
        }

        [DllImport("libc", EntryPoint = "kill")]
        static extern int Signal(int process, int signal);

        // Sends SIGTERM.
        public void Terminate()
        {
            Signal(process.Id, 15);
        }

        public void Kill()
        {
            if (!process.HasExited)
            {
                process.Kill();
                process.WaitForExit();
            }
        }

        public override string ToString()
        {
            string text = Text;
            return "--- " + name + "\n" + (text.Length > 2000 ? "…" + text.Substring(text.Length - 2000) : text);
        }
    }

    // A scene as in the samples (hologram, camera, HUD), driven like Unity's player loop.
    sealed class Stage
    {
        public readonly GameObject Hologram;
        public readonly HolocastSession Session;
        public readonly HolocastPoints Points;
        public readonly HolocastPlacement Placement;
        public readonly HolocastPlayback Playback;
        public readonly HolocastHud Hud;
        public readonly Transform Eyes;
        readonly Stopwatch clock = Stopwatch.StartNew();
        double last;

        public Stage(string url, string hash = "", Action<Stage> before = null)
        {
            var eyes = new GameObject("Main Camera") { tag = "MainCamera" };
            eyes.AddComponent<Camera>();
            Eyes = eyes.transform;
            Eyes.position = new Vector3(0, 1.6f, 0);
            Hologram = new GameObject("Hologram");
            Hologram.SetActive(false);
            Session = Hologram.AddComponent<HolocastSession>();
            Session.Url = url;
            Session.CertificateHash = hash;
            Points = Hologram.AddComponent<HolocastPoints>();
            Points.KeepDisplayRate = false;
            Placement = Hologram.AddComponent<HolocastPlacement>();
            Playback = Hologram.AddComponent<HolocastPlayback>();
            before?.Invoke(this);
            Hologram.SetActive(true);
            Hud = new GameObject("Hud").AddComponent<HolocastHud>();
        }

        // Runs one Unity frame, at 60 frames per second.
        public void Tick()
        {
            double now = clock.Elapsed.TotalSeconds;
            double wait = last + 1.0 / 60 - now;
            if (wait > 0)
            {
                Thread.Sleep(TimeSpan.FromSeconds(wait));
                now = clock.Elapsed.TotalSeconds;
            }
            Loop.Tick((float)(now - last));
            last = now;
        }

        // Runs frames for the given time, at least 60 per second: enough to notice events that must
        // not happen.
        public void Run(double seconds)
        {
            double end = clock.Elapsed.TotalSeconds + seconds;
            for (int ticks = 0; clock.Elapsed.TotalSeconds < end || ticks < 60 * seconds; ticks++)
            {
                Tick();
            }
        }

        // Runs frames until a value has stayed the same for a second, and returns it.
        public T Settled<T>(string what, Func<T> value)
        {
            double start = clock.Elapsed.TotalSeconds;
            for (; ; )
            {
                T before = value();
                Run(1);
                T after = value();
                if (EqualityComparer<T>.Default.Equals(before, after))
                {
                    return after;
                }
                Check.That(clock.Elapsed.TotalSeconds < start + Lab.HangGuard, what + " keeps changing, now " + after);
            }
        }

        public void Until(string what, Func<bool> happened, double seconds = Lab.HangGuard)
        {
            for (double end = clock.Elapsed.TotalSeconds + seconds; !happened();)
            {
                if (clock.Elapsed.TotalSeconds > end)
                {
                    HolocastStatistics s = Statistics();
                    string got = s.Frames + " frames, " + s.FramesShown + " shown, " + s.FramesLate + " late, "
                        + s.FramesSkipped + " skipped, " + s.FramesDamaged + " damaged, " + s.MemoryBytes
                        + " bytes held";
                    if (Session.TryGetSphereStatistics(out s))
                    {
                        got += "; 360° video: " + s.Frames + " frames, " + s.FramesDamaged + " damaged, tiles cover "
                            + s.TileHits + " of the viewport";
                    }
                    throw new Failed("timed out after " + seconds + " s waiting for " + what + "; " + Session.State
                        + ": " + Session.Message + "; " + got + "\n" + string.Join("\n", Loop.Log));
                }
                Tick();
            }
        }

        public HolocastStatistics Statistics()
        {
            Session.TryGetStatistics(out HolocastStatistics s);
            return s;
        }

        public void UntilShown(string what, int frames = 1)
        {
            long before = Statistics().FramesShown;
            Until(what, () => Statistics().FramesShown >= before + frames);
        }
    }

    static class Check
    {
        public static void That(bool so, string otherwise)
        {
            if (!so)
            {
                throw new Failed(otherwise);
            }
        }

        public static void Contains(string wanted, string text)
        {
            That(text.Contains(wanted), "“" + text + "” does not contain “" + wanted + "”");
        }
    }
}
