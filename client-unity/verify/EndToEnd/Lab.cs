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

    // Real programs, and a scene with the package's components, driven as Unity would.
    sealed class Lab : IDisposable
    {
        public static string Root, Binaries, Library, Scratch;

        readonly List<Running> programs = new List<Running>();

        // Where the runtime finds the native library: the file that cargo built.
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

        // A port that is free for UDP and TCP.
        public static int FreePort()
        {
            for (; ; )
            {
                var tcp = new TcpListener(IPAddress.Loopback, 0);
                tcp.Start();
                int port = ((IPEndPoint)tcp.LocalEndpoint).Port;
                try
                {
                    using (var udp = new UdpClient(new IPEndPoint(IPAddress.Loopback, port)))
                    {
                        return port;
                    }
                }
                catch (SocketException)
                {
                    // Another one.
                }
                finally
                {
                    tcp.Stop();
                }
            }
        }

        public Running Relay(int port, params string[] more)
        {
            string address = "127.0.0.1:" + port;
            Running relay = Start("relay", new[] { "--listen", address, "--http", address }.Concat(more).ToArray());
            using (var http = new HttpClient { Timeout = TimeSpan.FromSeconds(10) })
            {
                Until("the relay's start", 30, () =>
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

        // How long to wait at least: a machine with much else to do stands still for seconds.
        public const double Patience = 60;

        public static void Until(string what, double seconds, Func<bool> happened)
        {
            seconds = Math.Max(seconds, Patience);
            var clock = Stopwatch.StartNew();
            while (!happened())
            {
                if (clock.Elapsed.TotalSeconds > seconds)
                {
                    throw new Failed(what + " did not happen in " + seconds + " s");
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

    // A program under test, killed when the test ends before it.
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

        public string MustEnd(int seconds)
        {
            if (!process.WaitForExit(seconds * 1000))
            {
                throw new Failed(name + " does not end");
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

        // SIGTERM.
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

    // The scene of the samples: a hologram, eyes, a HUD.
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

        // Sixty pictures a second.
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

        public void Run(double seconds)
        {
            for (double end = clock.Elapsed.TotalSeconds + seconds; clock.Elapsed.TotalSeconds < end;)
            {
                Tick();
            }
        }

        public void Until(string what, double seconds, Func<bool> happened)
        {
            seconds = Math.Max(seconds, Lab.Patience);
            for (double end = clock.Elapsed.TotalSeconds + seconds; !happened();)
            {
                if (clock.Elapsed.TotalSeconds > end)
                {
                    HolocastStatistics s = Statistics();
                    string got = s.Frames + " frames, " + s.FramesShown + " shown, " + s.FramesLate + " late, " + s.FramesSkipped + " skipped, " + s.FramesDamaged + " damaged, " + s.MemoryBytes + " bytes held";
                    if (Session.TryGetSphereStatistics(out s))
                    {
                        got += "; of 360° video " + s.Frames + " frames, " + s.FramesDamaged + " damaged, tiles in " + s.TileHits + " of the view";
                    }
                    throw new Failed(what + " did not happen in " + seconds + " s; " + Session.State + ": " + Session.Message + "; " + got + "\n" + string.Join("\n", Loop.Log));
                }
                Tick();
            }
        }

        public HolocastStatistics Statistics()
        {
            Session.TryGetStatistics(out HolocastStatistics s);
            return s;
        }

        public void UntilShown(string what, int frames = 1, double seconds = 20)
        {
            long before = Statistics().FramesShown;
            Until(what, seconds, () => Statistics().FramesShown >= before + frames);
        }
    }

    // How long the machine stood still: times in which a thread that only sleeps did not run.
    sealed class Standstill : IDisposable
    {
        readonly Thread thread;
        volatile bool ended;
        long ticks;

        public double Milliseconds => Interlocked.Read(ref ticks) / (Stopwatch.Frequency / 1000.0);

        public Standstill()
        {
            thread = new Thread(Watch) { IsBackground = true };
            thread.Start();
        }

        void Watch()
        {
            long usual = 15 * Stopwatch.Frequency / 1000, last = Stopwatch.GetTimestamp();
            while (!ended)
            {
                Thread.Sleep(5);
                long now = Stopwatch.GetTimestamp();
                if (now - last > usual)
                {
                    Interlocked.Add(ref ticks, now - last);
                }
                last = now;
            }
        }

        public void Dispose()
        {
            ended = true;
            thread.Join();
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
