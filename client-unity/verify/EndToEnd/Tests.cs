using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Text.Json;
using Holocast.Native;
using MixedReality.Toolkit.SpatialManipulation;
using UnityEngine;
using UnityEngine.Stub;
using UnityEngine.XR;
using UnityEngine.XR.Interaction.Toolkit;

namespace Holocast.Verify
{
    // End-to-end tests: the compiled package and the native library with the real relay and publishers.
    static class Tests
    {
        public static readonly (string Name, Action<Lab> Run)[] All =
        {
            ("live session", LiveSession),
            ("late join", LateJoin),
            ("receipts reach the publisher", Receipts),
            ("no allocation per frame", NoAllocation),
            ("layouts B and C, four descriptions", Layouts),
            ("qualities by view", QualitiesByView),
            ("frames in datagrams", Datagrams),
            ("relay restart", RelayRestart),
            ("publisher restart", PublisherReturns),
            ("GOAWAY", Goaway),
            ("pause and seek", Recording),
            ("session list", Browsing),
            ("pairing code", Pairing),
            ("hand placement", Hands),
            ("headset menu", Menu),
            ("MRTK3 manipulation", Manipulation),
            ("hostile publisher", Hostile),
            ("no growth", NoGrowth),
            ("wrong address", WrongAddress),
            ("refused certificate", RefusedCertificate),
            ("frame larger than the buffers", LargerThanBuffers),
            ("frame larger than announced", LargerThanAnnounced),
            ("catalog without cameras", NoCameras),
            ("360° video without HolocastSphere", SphereUnseen),
            ("360° video", Sphere),
            ("360° video in tiles", Tiles),
            ("undecodable 360° video", SphereUndecodable),
            ("recorded 360° video", RecordedSphere),
            ("tiles of recorded 360° video", RecordedTiles),
            ("sound of 360° video", SoundTests.Film),
            ("sound of a microphone", SoundTests.Microphone),
            ("sound in step with points", SoundTests.InStep),
            ("token", Token),
        };

        static string Url(int port, string session) => "moqt://127.0.0.1:" + port + "/" + session;

        static Running Capture(Lab lab, int port, string session, params string[] more) =>
            lab.Start("capture-server",
                new[] { "--source", "synthetic" }.Concat(more).Append(Url(port, session)).ToArray());

        static Running Publisher(Lab lab, int port, string session, params string[] more) =>
            lab.Start("publisher",
                new[] { "--width", "320", "--height", "288" }.Concat(more).Append(Url(port, session)).ToArray());

        static string F(double v) => v.ToString("F1", CultureInfo.InvariantCulture);

        // Frames, statistics and HUD of a live session. Prints figures next to holocast play's for the README; they
        // depend on the machine's load, so only bounds that hold under any load are checked.
        static void LiveSession(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            var sinceStart = Stopwatch.StartNew();
            Running capture = Capture(lab, port, "live");
            Lab.Until("the publisher", () => capture.Text.Contains("msg=publishing"));
            var sinceOpen = Stopwatch.StartNew();
            var stage = new Stage(Url(port, "live"));
            stage.UntilShown("the first frame");
            Near("the hologram's distance", 1.5, Ahead(stage));
            Running play = lab.Start("holocast", "play", Url(port, "live"), "--wait", "--duration", "4s", "--json");
            stage.Until("the end of holocast play", () => play.HasEnded);
            string report = play.MustEnd().Trim().Split('\n').Last(l => l.StartsWith("{"));
            double player = JsonDocument.Parse(report).RootElement.GetProperty("frame_delay_ms").GetProperty("p50")
                .GetDouble();
            stage.Until("60 frames and a frame rate", () => stage.Statistics().FramesShown >= 60
                && stage.Statistics().Fps > 0);
            HolocastStatistics s = stage.Statistics();
            Console.WriteLine("      first frame " + F(s.FirstFrameMs) + " ms, FPS " + F(s.Fps) + ", frame delay p50 "
                + F(s.RunDelayP50)
                + " ms (holocast play: " + F(player) + " ms), " + stage.Points.Points + " points, lost "
                + s.FramesLost);
            Check.That(s.FirstFrameMs > 0 && s.FirstFrameMs < sinceOpen.Elapsed.TotalMilliseconds, "first frame after "
                + F(s.FirstFrameMs) + " ms");
            // Both clocks are this machine's, so no frame can be older than the publisher.
            Check.That(s.RunDelayP50 > 0 && s.RunDelayP50 < sinceStart.Elapsed.TotalMilliseconds, "frame delay p50 "
                + F(s.RunDelayP50) + " ms");
            Check.That(s.RunDelayP50 <= s.RunDelayP95 && s.FramesShown <= s.Frames && s.FramesDamaged == 0,
                s.FramesShown + " of " + s.Frames + " frames shown, " + s.FramesDamaged + " damaged");
            stage.Until("Live without a message", () => stage.Session.State == HolocastState.Live
                && stage.Session.Message == "");
            stage.Until("the HUD's statistics", () => stage.Hud.Text.Contains("FPS ")
                && stage.Hud.Text.Contains("Frame delay p50 ") && stage.Hud.Text.Contains("surface\n"));
            stage.Points.Look = HolocastLook.Points;
            stage.Until("points in the HUD", () => stage.Hud.Text.Contains("points\n"));
        }

        // Horizontal distance from the eyes to the subject, metres.
        static double Ahead(Stage stage)
        {
            Check.That(stage.Points.TryGetSubject(out Vector3 middle, out Vector3 along), "no subject");
            // The first frame determines the placement; the subject moves afterwards.
            Vector3 d = middle - stage.Eyes.position;
            return Vector3.Dot(new Vector3(d.x, 0, d.z), Vector3.forward);
        }

        static void Near(string what, double wanted, double got)
        {
            Check.That(Math.Abs(wanted - got) < 0.5, what + " is " + got + ", want " + wanted);
        }

        static void LateJoin(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "late", "--fps", "0.001");
            var first = new Stage(Url(port, "late"));
            first.UntilShown("the first viewer's frame");
            Loop.Clear();
            // The next frame is more than a quarter of an hour away, so this one comes from the relay's cache.
            var stage = new Stage(Url(port, "late"));
            stage.UntilShown("a late viewer's first frame");
            Console.WriteLine("      first frame " + F(stage.Statistics().FirstFrameMs) + " ms");
        }

        static void Receipts(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "receipts");
            Running listener = lab.Start("publisher", "--receipts", Url(port, "receipts"));
            var stage = new Stage(Url(port, "receipts"));
            stage.Until("receipts", () =>
                listener.Text.Split('\n').Count(l => l.StartsWith("receipt receipts/")) >= 30);
            Check.That(!listener.Text.Contains("no receipt:"), listener.Text);
            string[] words = listener.Text.Split('\n').First(l => l.StartsWith("receipt ")).Split(' ');
            Check.That(words[2] == "0" && long.Parse(words[4]) > -1000000 && long.Parse(words[4]) < 60000000,
                string.Join(" ", words));
            Check.That(stage.Statistics().Receipts >= 30, "the viewer counted " + stage.Statistics().Receipts);
        }

        static void NoAllocation(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "garbage");
            var stage = new Stage(Url(port, "garbage"));
            stage.UntilShown("frames", 60);
            long shown = 0, pictures = 0, allocated = 0;
            long until = stage.Statistics().FramesShown + 60;
            stage.Until("300 pictures and 60 frames", () =>
            {
                long before = GC.GetAllocatedBytesForCurrentThread();
                stage.Tick();
                shown = stage.Statistics().FramesShown;
                allocated += GC.GetAllocatedBytesForCurrentThread() - before;
                return ++pictures >= 300 && shown >= until;
            });
            Check.That(allocated == 0, allocated + " bytes in " + pictures + " pictures");
            Console.WriteLine("      0 bytes in " + pictures + " pictures");
        }

        static void Layouts(Lab lab)
        {
            foreach (var (layout, descriptions) in new[] { ("a", "4"), ("b", "1"), ("c", "4") })
            {
                using (var inner = new Lab())
                {
                    int port = Lab.FreePort();
                    inner.Relay(port);
                    Publisher(inner, port, "layout", "--layout", layout, "--descriptions", descriptions);
                    var stage = new Stage(Url(port, "layout"));
                    stage.UntilShown("frames of layout " + layout, 5);
                    CameraPoints view = stage.Points.Views[0];
                    Check.That(view.Points > 10000, "layout " + layout + ": " + view.Points + " points");
                    MeshRenderer renderer = view.Transform.GetComponent<MeshRenderer>();
                    Check.That(renderer.enabled
                        && renderer.sharedMaterial.IsKeywordEnabled("HOLOCAST_CLOUD") == (layout != "a"), "layout "
                        + layout + ": wrong shader variant");
                    Mesh mesh = view.Transform.GetComponent<MeshFilter>().sharedMesh;
                    Check.That(mesh.GetSubMesh(0).indexCount == 6 * view.Points,
                        "the submesh does not match the points");
                }
            }
        }

        // The camera that the main camera sees gets the better quality, before and behind the performer.
        static void QualitiesByView(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Capture(lab, port, "view", "--cameras", "2", "--fps", "10", "--depth-mode", "NFOV_2X2BINNED", "--high");
            // The catalog expects 369, 184 and 65 kbit/s in the qualities full, high and low.
            var stage = new Stage(Url(port, "view"), before: s => s.Points.MaxBitrate = 0.45f);
            stage.UntilShown("the first frame");
            foreach (var (side, qualities) in
                new[] { (1, "0 high, 1 low"), (-1, "0 low, 1 high"), (1, "0 high, 1 low") })
            {
                bool yUp = stage.Session.Catalog.StudioYUp;
                Vector3 eyes = Studio.Place(0, yUp ? 1100 : -1100, 1200 * side, yUp);
                Transform hologram = stage.Hologram.transform;
                stage.Eyes.position = hologram.TransformPoint(eyes);
                stage.Eyes.rotation = hologram.rotation
                    * Quaternion.LookRotation(new Vector3(0, 0, -eyes.z), Vector3.up);
                stage.Until("quality " + qualities, () => stage.Hud.Text.Contains("Quality " + qualities));
                stage.UntilShown("frames of both qualities", 4);
            }
            stage.Until("the depth error in the HUD", () => stage.Hud.Text.Contains("  depth ±"));
            HolocastStatistics s = stage.Statistics();
            Check.That(s.FramesDamaged == 0, s.FramesDamaged + " damaged");
            Check.That(s.FramesShown > 0 && stage.Points.Views.All(v => v.Points > 1000), "a camera disappeared");
        }

        // The publisher sends every ninth part only on request. The viewer misses more parts than the relay's
        // request limit allows it to request one by one, so requests must cover several parts.
        static void Datagrams(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "datagrams", "--descriptions", "4", "--datagrams", "9");
            var stage = new Stage(Url(port, "datagrams"));
            stage.UntilShown("frames in datagrams", 120);
            stage.Until("a repaired frame", () => stage.Statistics().FramesRepaired > 0);
            stage.Until("the repairs in the HUD", () => stage.Hud.Text.Contains("Repaired "));
            HolocastStatistics s = stage.Statistics();
            Check.That(s.FramesDamaged == 0, s.FramesDamaged + " damaged");
            Console.WriteLine("      " + s.FramesShown + " frames shown, " + s.FramesRepaired + " repaired, "
                + s.FramesAbandoned + " dropped, " + s.PartsLost + " parts lost");
        }

        static void RelayRestart(Lab lab)
        {
            int port = Lab.FreePort();
            Running relay = lab.Relay(port);
            Publisher(lab, port, "restart");
            var stage = new Stage(Url(port, "restart"));
            stage.UntilShown("frames", 10);
            relay.Kill();
            stage.Until("the loss of the relay", () => stage.Session.State != HolocastState.Live);
            Check.That(stage.Session.Message.Length > 0, stage.Session.State + " has no message");
            stage.Until("the message in the HUD", () => stage.Session.Message.Length > 0
                && stage.Hud.Text.Contains(stage.Session.Message));
            lab.Relay(port);
            stage.UntilShown("frames after the restart", 10);
            Check.That(stage.Session.State == HolocastState.Live && stage.Session.Reconnects >= 1, stage.Session.State
                + ", " + stage.Session.Reconnects + " reconnects");
        }

        static void PublisherReturns(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port, "--publisher-grace", "1s");
            var stage = new Stage(Url(port, "returns"));
            stage.Until("the state Waiting", () => stage.Session.State == HolocastState.Waiting);
            Check.Contains("“returns” at 127.0.0.1:" + port + " has no publisher yet", stage.Session.Message);
            Running publisher = Publisher(lab, port, "returns");
            stage.UntilShown("frames", 10);
            publisher.Kill();
            stage.Until("the loss of the publisher", () => stage.Session.State == HolocastState.Silent
                || stage.Session.State == HolocastState.Ended || stage.Session.State == HolocastState.Waiting);
            Check.That(stage.Session.Message.Contains("“returns”"), stage.Session.Message);
            Publisher(lab, port, "returns");
            stage.UntilShown("frames of the new publisher", 10);
        }

        static void Goaway(Lab lab)
        {
            int port = Lab.FreePort(), other = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "away");
            lab.Start("publisher", "--leave-for", "moqt://127.0.0.1:" + port, "127.0.0.1:" + other);
            var stage = new Stage(Url(other, "away"));
            stage.UntilShown("frames from the GOAWAY target", 10);
        }

        static void Recording(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Running publisher = Publisher(lab, port, "take");
            string folder = Path.Combine(Path.GetTempPath(), "holocast-verify-" + Process.GetCurrentProcess().Id);
            Directory.CreateDirectory(folder);
            try
            {
                string take = Path.Combine(folder, "take.mcap");
                lab.Start("holocast", "record", Url(port, "take"), take, "--wait", "--duration", "6s").MustEnd();
                publisher.Kill();
                lab.Start("holocast", "replay", take, Url(port, "replay"), "--loop");
                var stage = new Stage(Url(port, "replay"));
                stage.UntilShown("frames of the replay", 5);
                stage.Until("the recording", () => stage.Playback.Available && stage.Playback.Duration > 2.5);
                Check.That(stage.Session.Replayed && stage.Playback.IsLive, "not a shared replay");
                stage.Until("the replay in the HUD", () => stage.Hud.Text.Contains("Arrival to picture"));

                // The first frames of a slow publisher follow the recording's beginning by seconds.
                double middle = stage.Playback.Duration / 2;
                stage.Playback.Seek(middle);
                stage.Until("the seek", () => !stage.Playback.IsLive && stage.Playback.Position >= middle - 0.1);
                stage.Playback.Pause();
                stage.Until("the pause", () => !stage.Playback.Playing);
                // While paused, neither the position nor the frame changes.
                stage.Settled("the paused playback", () => (stage.Playback.Position, stage.Statistics().FramesShown));
                stage.Playback.Seek(middle + 0.2);
                stage.Until("a forward seek while paused", () => Math.Abs(stage.Playback.Position - middle - 0.2) < 0.01
                    && !stage.Playback.Waiting);
                stage.Settled("the paused playback", () => (stage.Playback.Position, stage.Statistics().FramesShown));

                stage.Playback.Seek(middle - 1);
                uint sequence = stage.Points.Views[0].Sequence;
                stage.Until("a backward seek while paused", () => Math.Abs(stage.Playback.Position - middle + 1) < 0.01
                    && stage.Points.Views[0].Sequence < sequence);
                stage.Playback.Play();
                stage.Until("playback", () => stage.Playback.Playing && stage.Playback.Position > middle - 0.5);
                stage.Playback.GoLive();
                stage.Until("the shared replay", () => stage.Playback.IsLive);
                stage.UntilShown("frames of the shared replay", 5);
                Console.WriteLine("      a recording of " + F(stage.Playback.Duration) + " s: seek, pause, play, live");
            }
            finally
            {
                Directory.Delete(folder, true);
            }
        }

        static void Browsing(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "one");
            Publisher(lab, port, "two");
            var stage = new Stage("", "", s => s.Hologram.AddComponent<HolocastBrowser>());
            HolocastBrowser browser = stage.Hologram.GetComponent<HolocastBrowser>();
            browser.Browse("not an address");
            Check.Contains("is not the address of a relay", browser.Message);
            browser.Browse("127.0.0.1:" + port);
            stage.Until("the list of sessions", () => browser.Sessions.SequenceEqual(new[] { "one", "two" }));
            browser.Join("two");
            stage.UntilShown("frames of the chosen session", 3);
            Check.That(browser.Addresses[0].Url == Url(port, "two"), "stored: " + browser.Addresses[0].Url);
            Check.That(PlayerPrefs.GetString("Holocast.Addresses", "") == Url(port, "two"),
                "the address was not stored");
        }

        static void Pairing(Lab lab)
        {
            int port = Lab.FreePort();
            // holocast pair replaces 127.0.0.1 with this machine's address.
            lab.Relay(port, "--listen", ":" + port, "--http", ":" + port, "--insecure");
            Publisher(lab, port, "paired");
            Running pair = lab.Start("holocast", "pair", Url(port, "paired"));
            string link = null;
            var stage = new Stage("", "", s => s.Hologram.AddComponent<HolocastBrowser>());
            stage.Until("the pairing link", () =>
                (link = pair.Text.Split().FirstOrDefault(HolocastAddress.IsPairingLink)) != null);
            HolocastBrowser browser = stage.Hologram.GetComponent<HolocastBrowser>();
            Check.That(browser.JoinText(link.Split('#')[0] + "#AAECAwQFBgcICQoLDA0ODw"), "another key is no link");
            stage.Until("the message for another key", () => browser.Message.Contains("does not fit its code"));
            stage.Until("the message in the HUD", () => stage.Hud.Text.Contains("does not fit its code"));
            Check.That(browser.JoinText(link), "not a pairing link: " + link);
            stage.UntilShown("frames of the paired session", 3);
            Check.That(browser.Addresses[0].Session == "paired" && browser.Addresses[0].CertificateHash.Length == 64,
                "stored: " + browser.Addresses[0]);
            Check.That(!stage.Session.Message.Contains("fit its code"), "the message is still shown");
            Check.That(!browser.JoinText("relay.example:4443"), "an address without a session is joined");
        }

        static void Hands(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "hands");
            var left = InputDevices.Stub[(int)XRNode.LeftHand] =
                new StubDevice { Position = new Vector3(-0.2f, 1.2f, 0.5f) };
            var right = InputDevices.Stub[(int)XRNode.RightHand] =
                new StubDevice { Position = new Vector3(0.2f, 1.2f, 0.5f) };
            try
            {
                var stage = new Stage(Url(port, "hands"), "", s => s.Hologram.AddComponent<HolocastAnchor>());
                stage.UntilShown("frames", 3);
                Near("the hologram's distance", 1.5, Ahead(stage));
                Vector3 before = stage.Hologram.transform.position;

                // A pinch elsewhere, for example on another app's window behind the user.
                var aside = right.Position;
                right.Position = new Vector3(1, 1.6f, -1);
                right.Pressed = true;
                stage.Tick();
                right.Position += Vector3.up;
                stage.Tick();
                right.Pressed = false;
                stage.Tick();
                right.Position = aside;
                Check.That((stage.Hologram.transform.position - before).magnitude < 1e-5f,
                    "a pinch elsewhere moved it");
                Check.That(PlayerPrefs.GetString("Holocast.Place", "") == "", "a pinch elsewhere stored its place");

                right.Pressed = true;
                stage.Tick();
                right.Position += new Vector3(0.1f, 0, 0.2f);
                stage.Tick();
                Vector3 moved = stage.Hologram.transform.position - before;
                Check.That((moved - new Vector3(0.1f, 0, 0.2f)).magnitude < 1e-3f, "one hand moved it by " + moved);
                right.Position -= new Vector3(0.1f, 0, 0.2f);
                stage.Tick();

                left.Pressed = true;
                stage.Tick();
                left.Position = new Vector3(-0.4f, 1.2f, 0.5f);
                right.Position = new Vector3(0.4f, 1.2f, 0.5f);
                stage.Tick();
                Check.That(Math.Abs(stage.Hologram.transform.localScale.x - 2) < 0.01, "both hands scaled it to "
                    + stage.Hologram.transform.localScale.x);
                Check.That(PlayerPrefs.GetString("Holocast.Place", "") == "", "the place was stored while held");
                left.Pressed = right.Pressed = false;
                stage.Tick();
                string[] kept = PlayerPrefs.GetString("Holocast.Place", "").Split(' ');
                Check.That(kept.Length == 8 && Math.Abs(double.Parse(kept[7], CultureInfo.InvariantCulture) - 2) < 0.01,
                    "kept: " + string.Join(" ", kept));

                stage.Placement.PickUp();
                stage.Eyes.rotation = Quaternion.AngleAxis(90, Vector3.up);
                stage.Tick();
                stage.Points.TryGetSubject(out Vector3 middle, out _);
                Check.That(Math.Abs(middle.x - stage.Eyes.position.x - 1.5f) < 0.5f, "carried to " + middle);
                left.Pressed = true;
                stage.Tick();
                Check.That(!stage.Placement.Carried, "a pinch did not put it down");
            }
            finally
            {
                Array.Clear(InputDevices.Stub, 0, InputDevices.Stub.Length);
            }
        }

        static void Manipulation(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "manipulation");
            var stage = new Stage(Url(port, "manipulation"), "",
                s => s.Hologram.AddComponent<HolocastManipulation>());
            stage.Until("the manipulator", () => stage.Hologram.GetComponent<ObjectManipulator>() != null);
            Check.That(stage.Hologram.GetComponent<ObjectManipulator>().selectMode == InteractableSelectMode.Multiple,
                "MRTK3 lets one hand alone hold the hologram");
        }

        static void Menu(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "menu");
            var hand = InputDevices.Stub[(int)XRNode.RightHand] = new StubDevice();
            try
            {
                var stage = new Stage("", "", s => s.Hologram.AddComponent<HolocastBrowser>());
                var menu = new GameObject("Menu").AddComponent<HolocastMenu>();
                stage.Hologram.GetComponent<HolocastBrowser>().Browse("127.0.0.1:" + port);
                stage.Until("the session in the menu", () => menu.IsOpen && menu.Labels.Contains("Join menu"));
                Choose(stage, menu, hand, "Join menu");
                stage.UntilShown("frames of the chosen session", 3);
                stage.Eyes.rotation = Quaternion.identity;
                stage.Until("the menu to close", () => !menu.IsOpen);
                stage.Eyes.rotation = Quaternion.AngleAxis(50, Vector3.right);
                stage.Until("the menu to open when looking down", () => menu.IsOpen
                    && menu.Labels.Contains("Bring here"));
                Choose(stage, menu, hand, "Leave session");
                Check.That(stage.Session.State == HolocastState.Disconnected, stage.Session.State.ToString());
            }
            finally
            {
                Array.Clear(InputDevices.Stub, 0, InputDevices.Stub.Length);
            }
        }

        // Looks at a menu item and pinches.
        static void Choose(Stage stage, HolocastMenu menu, StubDevice hand, string label)
        {
            int line = menu.Labels.ToList().IndexOf(label);
            Vector3 at = menu.transform.TransformPoint(new Vector3(0.1f, -(line + 0.5f) * 0.045f, 0));
            stage.Eyes.rotation = Quaternion.LookRotation(at - stage.Eyes.position, Vector3.up);
            stage.Tick();
            stage.Tick();
            Check.That(HolocastMenu.PointedAt, "the gaze misses the menu");
            hand.Pressed = true;
            stage.Tick();
            hand.Pressed = false;
            stage.Tick();
        }

        static void Hostile(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "hostile", "--hostile");
            var stage = new Stage(Url(port, "hostile"));
            stage.UntilShown("frames between hostile objects", 150);
            stage.Until("a hostile object", () => stage.Statistics().FramesDamaged > 0);
            HolocastStatistics s = stage.Statistics();
            Check.That(s.MemoryBytes < 64 << 20, "the library holds " + s.MemoryBytes + " bytes");
            stage.Until("the state Live", () => stage.Session.State == HolocastState.Live);
            Console.WriteLine("      " + s.FramesShown + " frames shown, " + s.FramesDamaged
                + " hostile objects dropped");
        }

        // Memory does not grow. HOLOCAST_SOAK sets the duration in seconds, 30 by default.
        static void NoGrowth(Lab lab)
        {
            double seconds = double.Parse(Environment.GetEnvironmentVariable("HOLOCAST_SOAK") ?? "30",
                CultureInfo.InvariantCulture);
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "soak", "--descriptions", "4");
            var stage = new Stage(Url(port, "soak"));
            stage.UntilShown("frames", 100);
            stage.Run(seconds / 6);
            GC.Collect();
            long before = Memory(), buffers = GraphicsBuffer.StubAlive;
            long frames = stage.Statistics().FramesShown;
            stage.Run(seconds);
            stage.Until("150 frames", () => stage.Statistics().FramesShown - frames > 150);
            GC.Collect();
            long after = Memory();
            frames = stage.Statistics().FramesShown - frames;
            Check.That(GraphicsBuffer.StubAlive == buffers, GraphicsBuffer.StubAlive - buffers
                + " more graphics buffers");
            Check.That(after - before < 8 << 20, "grew by " + (after - before) + " bytes in " + seconds + " s");
            Console.WriteLine("      " + frames + " frames in " + seconds + " s, memory " + F(before / 1048576.0)
                + " to " + F(after / 1048576.0) + " MiB");
            Loop.Clear();
            Check.That(GraphicsBuffer.StubAlive == 0, GraphicsBuffer.StubAlive + " graphics buffers leaked");
        }

        // Resident memory of this process, bytes.
        static long Memory()
        {
            string line = File.ReadLines("/proc/self/status").First(l => l.StartsWith("VmRSS:"));
            return 1024 * long.Parse(new string(line.Where(char.IsDigit).ToArray()));
        }

        static void WrongAddress(Lab lab)
        {
            foreach (var (url, sentence) in new[]
            {
                ("no address at all", "“no address at all” is not a session address"),
                ("moqt://127.0.0.1:99999/demo", "99999"),
            })
            {
                var stage = new Stage(url);
                AssertMessage(stage, HolocastState.Failed, sentence);
                Loop.Clear();
            }
            // A valid address without a relay.
            var nobody = new Stage(Url(Lab.FreePort(), "demo"));
            nobody.Until("the state Unreachable", () => nobody.Session.State == HolocastState.Unreachable);
            AssertMessage(nobody, HolocastState.Unreachable, nobody.Session.Address.Host);
        }

        static void RefusedCertificate(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "pinned");
            var stage = new Stage(Url(port, "pinned"), new string('0', 64));
            AssertMessage(stage, HolocastState.CertificateRefused, "ertificate of 127.0.0.1:" + port
                + " is not trusted: it has the hash ");
            Check.Contains(stage.Session.Address.CertificateHash, stage.Session.Message);
        }

        static void LargerThanBuffers(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "large");
            var stage = new Stage(Url(port, "large"), "", s => s.Points.MaxPoints = 20000);
            stage.UntilShown("frames", 3);
            CameraPoints view = stage.Points.Views[0];
            Check.That(view.Points <= 20000 && view.Points > 5000, view.Points + " points drawn");
            AssertMessage(stage, HolocastState.Live, "Camera 0 sends " + view.PointsOfFrame
                + " points and MaxPoints is 20000: one in ");
        }

        // Frames with more points than the catalog announces.
        static void LargerThanAnnounced(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "announced", "--max-points", "20000");
            var stage = new Stage(Url(port, "announced"));
            stage.Until("the rejection of its frames", () => stage.Session.Message.Contains("decoded"));
            AssertMessage(stage, HolocastState.Live, "No frame of camera 0 can be decoded: points: ");
            Check.That(stage.Statistics().FramesShown == 0, stage.Statistics().FramesShown + " frames were shown");
        }

        static void NoCameras(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            Publisher(lab, port, "empty", "--no-cameras");
            var stage = new Stage(Url(port, "empty"));
            stage.Until("the catalog", () => stage.Session.State == HolocastState.Waiting
                && stage.Session.Message.Contains("no cameras"));
            AssertMessage(stage, HolocastState.Waiting, "Session “empty” has no cameras yet; waiting for one.");
        }

        // The message says that the scene cannot show 360° video.
        static void SphereUnseen(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            string catalog = Path.Combine(Lab.Scratch, "sphere.json");
            File.WriteAllText(catalog,
                "{\"version\":\"draft-01\",\"tracks\":[{\"name\":\"video\",\"packaging\":\"loc\",\"role\":\"video\","
                + "\"isLive\":true,"
                + "\"codec\":\"avc1.42c01f\",\"width\":640,\"height\":320,"
                + "\"hcsphere\":{\"projection\":\"equirectangular\",\"stereo\":\"mono\",\"width\":640,\"height\":320,"
                + "\"columns\":0,\"rows\":0,\"qualities\":0}}]}");
            Publisher(lab, port, "sphere", "--catalog", catalog);
            var stage = new Stage(Url(port, "sphere"));
            stage.Until("the catalog", () => stage.Session.HasSphere);
            AssertMessage(stage, HolocastState.Waiting,
                "Session “sphere” is 360° video, but this scene cannot show it: add a HolocastSphere.");
        }

        // A film at 10 FPS whose samples encode position and time: Y rises from 30 at the left edge to 220 at
        // the right, Cb from 60 at the top to 190 at the bottom of each eye's picture; Cr is 40 plus 10 per
        // second, plus 60 for the right eye.
        internal static string Film(int seconds, bool stereo)
        {
            string path = Path.Combine(Lab.Scratch, (stereo ? "stereo" : "mono") + seconds + ".mp4");
            if (!File.Exists(path))
            {
                string height = stereo ? "480" : "240", eye = stereo ? "H/2" : "H";
                string picture = "nullsrc=s=480x" + height + ":r=10:d=" + seconds
                    + ",format=yuv420p,geq=lum='30+190*X/W':cb='60+130*mod(Y\\," + eye + ")/(" + eye + ")':cr='40+10*T"
                    + (stereo ? "+60*gte(Y\\,H/2)'" : "'");
                MakeFilm(picture, path, "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709");
            }
            return path;
        }

        // Encodes a video from a lavfi source.
        static void MakeFilm(string source, string path, params string[] options)
        {
            string[] arguments = { "-v", "error", "-y", "-f", "lavfi", "-i", source, "-c:v", "libx264", "-preset",
                "ultrafast", "-qp", "8" };
            var start = new ProcessStartInfo("ffmpeg");
            foreach (string argument in arguments.Concat(options).Append(path))
            {
                start.ArgumentList.Add(argument);
            }
            using (Process ffmpeg = Process.Start(start))
            {
                ffmpeg.WaitForExit();
                Check.That(ffmpeg.ExitCode == 0, "ffmpeg failed to create " + path);
            }
        }

        static HolocastSphere AddSphere(Stage stage)
        {
            return stage.Hologram.AddComponent<HolocastSphere>();
        }

        // Film time of the picture on display, seconds.
        static double FilmTime(HolocastSphere sphere)
        {
            return (sphere.Textures.Plane(2).StubPixels.Average(v => (double)v) - 40) / 10;
        }

        static void Sphere(Lab lab)
        {
            foreach (bool stereo in new[] { false, true })
            {
                int port = Lab.FreePort();
                lab.Relay(port);
                lab.Start("capture-server", "--source", "equirect:" + Film(10, stereo), "--stereo", stereo
                    ? "top-bottom" : "mono", "--http", "", Url(port, "film"));
                var stage = new Stage(Url(port, "film"));
                HolocastSphere sphere = AddSphere(stage);
                stage.Until("a picture", () => sphere.Shows);
                Check.That(stage.Session.State == HolocastState.Live && stage.Session.Message == "", stage.Session.State
                    + ": " + stage.Session.Message);
                Check.That(sphere.Stereo == stereo && sphere.Width == (stereo ? 1 : 2) * sphere.Height, sphere.Width
                    + "×" + sphere.Height);
                double worst = Math.Max(Off(sphere, 0, (x, y) => 30 + 190 * x),
                    Off(sphere, 1, (x, y) => 60 + 130 * (stereo ? 2 * y % 1 : y)));
                Check.That(worst < 6, "a region's mean is off by " + F(worst));
                double first = FilmTime(sphere);
                stage.Until("later pictures", () => Math.Abs(FilmTime(sphere) - first) > 0.5);
                stage.Until("the statistics in the HUD", () => stage.Hud.Text.Contains("360° FPS "));
                Console.WriteLine("      " + sphere.Width + "×" + sphere.Height + (stereo ? ", two eyes" : "")
                    + ", regions off by at most " + F(worst) + "; " + stage.Hud.Text.Replace("\n", ", "));
                if (!stereo)
                {
                    NoAllocationOf(stage);
                }
                Loop.Clear();
            }
        }

        // The picture becomes sharp in the gaze direction but not behind the viewer, and is never
        // black.
        static void Tiles(Lab lab)
        {
            string film = Path.Combine(Lab.Scratch, "stripes.mp4");
            if (!File.Exists(film))
            {
                MakeFilm("nullsrc=s=960x480:r=10:d=10,format=yuv420p,geq=lum='128+60*sin(2*PI*X/6)':cb=128:cr=128",
                    film);
            }
            int port = Lab.FreePort();
            Running relay = lab.Relay(port);
            lab.Start("capture-server", "--source", "equirect:" + film, "--stereo", "mono", "--grid", "8x4", "--http",
                "", Url(port, "film"));
            var stage = new Stage(Url(port, "film"));
            HolocastSphere sphere = AddSphere(stage);
            stage.Until("a picture", () => sphere.Shows);
            stage.Until("sharp tiles ahead", () => Contrast(sphere, 0.5) > 30);
            Check.That(sphere.Width == 960 && sphere.Height == 480, sphere.Width + "×" + sphere.Height);
            double ahead = Contrast(sphere, 0.5), behind = Contrast(sphere, 0.02);
            Check.That(behind < 20, "contrast behind the eyes is " + F(behind) + ", ahead " + F(ahead));
            NeverBlack(sphere);
            stage.Until("tiles covering the viewport",
                () => stage.Session.TryGetSphereStatistics(out HolocastStatistics s) && s.TileHits > 0.5);
            Console.WriteLine("      contrast " + F(ahead) + " ahead, " + F(behind) + " behind; "
                + stage.Hud.Text.Replace("\n", ", "));
            // The head turns around: sharp and blurred halves swap.
            stage.Eyes.rotation = Quaternion.AngleAxis(180, Vector3.up);
            stage.Until("sharp tiles behind", () =>
            {
                NeverBlack(sphere);
                return Contrast(sphere, 0.02) > 30 && Contrast(sphere, 0.5) < 20;
            });
            relay.Kill();
            lab.Relay(port);
            stage.Until("sharp tiles over the new relay", () =>
            {
                NeverBlack(sphere);
                return stage.Session.State == HolocastState.Live && stage.Session.Reconnects > 0
                    && Contrast(sphere, 0.02) > 30;
            });
        }

        // Standard deviation of luma near a point of the horizon. across: position as a fraction of the
        // picture's width.
        static double Contrast(HolocastSphere sphere, double across)
        {
            Texture2D t = sphere.Textures.Plane(0);
            var samples = new List<double>();
            for (int y = t.height * 9 / 20; y < t.height * 11 / 20; y++)
            {
                for (int x = 0; x < t.width / 40; x++)
                {
                    samples.Add(t.StubPixels[y * t.width + ((int)(across * t.width) + x) % t.width]);
                }
            }
            double mean = samples.Average();
            return Math.Sqrt(samples.Average(v => (v - mean) * (v - mean)));
        }

        static void NeverBlack(HolocastSphere sphere)
        {
            Texture2D t = sphere.Textures.Plane(0);
            for (int y = 0; y + 12 <= t.height; y += 12)
            {
                for (int x = 0; x + 12 <= t.width; x += 12)
                {
                    double sum = 0;
                    for (int i = 0; i < 144; i++)
                    {
                        sum += t.StubPixels[(y + i / 12) * t.width + x + i % 12];
                    }
                    Check.That(Math.Abs(sum / 144 - 128) < 20, "mean luma of " + F(sum / 144) + " at " + x + ", " + y);
                }
            }
        }

        // Largest mean difference between an 8×8 region and the film.
        static double Off(HolocastSphere sphere, int plane, Func<double, double, double> wanted)
        {
            Texture2D t = sphere.Textures.Plane(plane);
            byte[] samples = t.StubPixels;
            double worst = 0;
            for (int y = 8; y + 16 <= t.height; y += 8)
            {
                for (int x = 8; x + 16 <= t.width; x += 8)
                {
                    double sum = 0;
                    for (int i = 0; i < 64; i++)
                    {
                        int u = x + i % 8, v = y + i / 8;
                        sum += samples[v * t.width + u] - wanted((u + 0.5) / t.width, (v + 0.5) / t.height);
                    }
                    // A region at the seam mixes both eyes.
                    bool seam = sphere.Stereo && y <= t.height / 2 && y + 8 >= t.height / 2;
                    worst = seam ? worst : Math.Max(worst, Math.Abs(sum / 64));
                }
            }
            return worst;
        }

        static void NoAllocationOf(Stage stage)
        {
            stage.Session.TryGetSphereStatistics(out HolocastStatistics s);
            long shown = s.FramesShown;
            long allocated = 0;
            stage.Until("a hundred pictures", () =>
            {
                long before = GC.GetAllocatedBytesForCurrentThread();
                stage.Tick();
                stage.Session.TryGetSphereStatistics(out s);
                allocated += GC.GetAllocatedBytesForCurrentThread() - before;
                return s.FramesShown >= shown + 100;
            });
            Check.That(allocated == 0, allocated + " bytes in " + (s.FramesShown - shown) + " pictures");
            Console.WriteLine("      0 bytes allocated in " + (s.FramesShown - shown) + " pictures");
        }

        static void SphereUndecodable(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            string catalog = Path.Combine(Lab.Scratch, "undecodable.json");
            File.WriteAllText(catalog,
                "{\"version\":\"draft-01\",\"tracks\":[{\"name\":\"video\",\"packaging\":\"loc\",\"role\":\"video\","
                + "\"isLive\":true,"
                + "\"codec\":\"av01.0.04M.08\",\"width\":640,\"height\":320,"
                + "\"hcsphere\":{\"projection\":\"equirectangular\",\"stereo\":\"mono\","
                    + "\"width\":640,\"height\":320}}]}");
            Publisher(lab, port, "newer", "--catalog", catalog);
            var stage = new Stage(Url(port, "newer"));
            AddSphere(stage);
            stage.Until("the error message", () => stage.Session.Message.Contains("decoded"));
            AssertMessage(stage, HolocastState.Live,
                "The 360° video cannot be decoded: its codec is av01.0.04M.08, but this client supports only avc1.");
        }

        static void RecordedSphere(Lab lab)
        {
            int port = Lab.FreePort();
            lab.Relay(port);
            string film = Film(20, false);
            string folder = Path.Combine(Path.GetTempPath(), "holocast-verify-sphere-"
                + Process.GetCurrentProcess().Id);
            Directory.CreateDirectory(folder);
            try
            {
                string take = Path.Combine(folder, "take.mcap");
                Running record = lab.Start("holocast", "record", Url(port, "take"), take, "--wait", "--duration",
                    "10s");
                Running capture = lab.Start("capture-server", "--source", "equirect:" + film, "--stereo", "mono",
                    "--loop=false", "--http", "", Url(port, "take"));
                record.MustEnd();
                capture.Kill();
                lab.Start("holocast", "replay", take, Url(port, "replay"), "--loop");
                var stage = new Stage(Url(port, "replay"));
                HolocastSphere sphere = AddSphere(stage);
                stage.Until("a picture of the replay", () => sphere.Shows);
                stage.Until("the recording", () => stage.Playback.Available && stage.Playback.Duration > 2.5);
                Check.That(stage.Session.Replayed && stage.Playback.IsLive, "not a shared replay");

                stage.Playback.Pause();
                stage.Until("the pause", () => !stage.Playback.IsLive && !stage.Playback.Playing);
                double End() => stage.Playback.Duration;
                // The first pictures of a slow publisher follow the recording's beginning by seconds.
                double late = End() - 0.5, early = late - 2;
                stage.Playback.Seek(late);
                stage.Until("the seek", () => Math.Abs(stage.Playback.Position - late) < 0.01
                    && !stage.Playback.Waiting);
                double there = stage.Settled("the paused picture", () => FilmTime(sphere));
                stage.Playback.Seek(early);
                stage.Until("a backward seek while paused", () => Math.Abs(stage.Playback.Position - early) < 0.01
                    && FilmTime(sphere) < there - 0.5);
                double here = stage.Settled("the paused picture", () => FilmTime(sphere));
                Check.That(Math.Abs(there - here - (late - early)) < 0.25, "positions " + F(late - early)
                    + " s apart show film times " + there + " and " + here + " s");
                stage.Playback.Play();
                stage.Until("playback", () => stage.Playback.Position > early + 1 && FilmTime(sphere) > here + 0.7);
                stage.Playback.GoLive();
                stage.Until("the shared replay", () => stage.Playback.IsLive);
                double time = FilmTime(sphere);
                stage.Until("pictures of the shared replay", () => Math.Abs(FilmTime(sphere) - time) > 0.3);
                Console.WriteLine("      a recording of " + F(End()) + " s: seeks " + F(late - early)
                    + " s apart show film times " + F(there - here) + " s apart");
            }
            finally
            {
                Directory.Delete(folder, true);
            }
        }

        // A paused recording is sharp in the gaze direction after a seek and after the head turns.
        static void RecordedTiles(Lab lab)
        {
            string folder = Path.Combine(Path.GetTempPath(), "holocast-verify-tiles-" + Process.GetCurrentProcess().Id);
            Directory.CreateDirectory(folder);
            try
            {
                // Stripes too fine for the low-resolution base; Cr is 40 plus 10 per second.
                string film = Path.Combine(folder, "stripes.mp4");
                MakeFilm(
                    "nullsrc=s=960x480:r=10:d=10,format=yuv420p,geq=lum='128+60*sin(2*PI*X/6)':cb=128:cr='40+10*T'",
                    film);
                string tour = Path.Combine(folder, "tour");
                lab.Start("holocast", "prepare", film, tour, "--stereo", "mono", "--qualities", "2", "--preset",
                    "ultrafast").MustEnd();
                int port = Lab.FreePort();
                Running relay = lab.Relay(port);
                lab.Start("capture-server", "--source", "tiles:" + tour, "--http", "", Url(port, "tour"));
                var stage = new Stage(Url(port, "tour"));
                HolocastSphere sphere = AddSphere(stage);
                stage.Until("a picture", () => sphere.Shows);
                stage.Until("the recording", () => stage.Playback.Available);
                stage.Playback.Pause();
                stage.Until("the pause", () => !stage.Playback.IsLive && !stage.Playback.Playing);
                foreach (double place in new[] { 6.5, 2.3 })
                {
                    stage.Playback.Seek(place);
                    stage.Until("sharp tiles at " + F(place) + " s", () => Math.Abs(FilmTime(sphere) - place) < 0.3
                        && Contrast(sphere, 0.5) > 30);
                    NeverBlack(sphere);
                    stage.Until("tiles covering the viewport",
                        () => stage.Session.TryGetSphereStatistics(out HolocastStatistics s) && s.TileHits > 0.9);
                }
                double there = stage.Settled("the paused picture", () => FilmTime(sphere));
                stage.Eyes.rotation = Quaternion.AngleAxis(180, Vector3.up);
                stage.Until("sharp tiles behind", () =>
                {
                    NeverBlack(sphere);
                    return Contrast(sphere, 0.02) > 30;
                });
                Check.That(FilmTime(sphere) == there || Math.Abs(FilmTime(sphere) - there) < 0.05,
                    "the paused picture moves");
                stage.Playback.Play();
                stage.Until("sharp tiles during playback", () => FilmTime(sphere) > 4 && Contrast(sphere, 0.02) > 30);
                stage.Playback.Pause();
                stage.Until("the second pause", () => !stage.Playback.Playing);
                relay.Kill();
                lab.Relay(port);
                stage.Until("the new relay", () => stage.Session.State == HolocastState.Live
                    && stage.Session.Reconnects > 0 && stage.Playback.Available);
                stage.Playback.Seek(7.5);
                stage.Until("sharp tiles over the new relay", () => Math.Abs(FilmTime(sphere) - 7.5) < 0.3
                    && Contrast(sphere, 0.02) > 30);
                stage.Playback.GoLive();
                stage.Until("sharp tiles of the shared replay", () => stage.Playback.IsLive
                    && Contrast(sphere, 0.02) > 30);
            }
            finally
            {
                Directory.Delete(folder, true);
            }
        }

        // A relay with keys, and viewers without a token, with a token for all sessions, and with
        // tokens for some.
        static void Token(Lab lab)
        {
            int port = Lab.FreePort();
            string keys = Path.Combine(Lab.Scratch, "relay.key");
            File.Delete(keys);
            lab.Start("relay", "key", keys).MustEnd();
            string TokenFor(params string[] rights) =>
                lab.Start("relay", new[] { "token", "--auth-keys", keys }.Concat(rights).ToArray())
                    .MustEnd().Split('\n')
                .First(l => l.StartsWith("eyJ")).Trim();
            lab.Relay(port, "--auth-keys", keys);
            string mayPublish = TokenFor("--publish", "secret"), mayWatch = TokenFor("--subscribe", "/");
            Publisher(lab, port, "secret?token=" + mayPublish);
            var without = new Stage(Url(port, "secret"));
            without.Until("the error message", () => without.Session.State == HolocastState.Refused);
            AssertMessage(without, HolocastState.Refused, "token");
            Loop.Clear();
            var stage = new Stage("", "", s => s.Hologram.AddComponent<HolocastBrowser>());
            HolocastBrowser browser = stage.Hologram.GetComponent<HolocastBrowser>();
            browser.Browse("127.0.0.1:" + port);
            stage.Until("the refusal to list sessions without a token", () => browser.Message.Contains("token"));
            Console.WriteLine("      " + browser.Message);
            browser.Browse("127.0.0.1:" + port + "/secret?token=" + mayWatch);
            stage.Until("the sessions that the token allows", () => browser.Sessions.SequenceEqual(new[] { "secret" }));
            browser.Join("secret");
            stage.UntilShown("frames of a session with a token", 3);
            Loop.Clear();
            // A token to watch two sessions, one of them without a publisher, but not to list sessions.
            string mayWatchTwo = TokenFor("--subscribe", "secret", "--subscribe", "later");
            Publisher(lab, port, "other?token=" + TokenFor("--publish", "other"));
            stage = new Stage("", "", s => s.Hologram.AddComponent<HolocastBrowser>());
            browser = stage.Hologram.GetComponent<HolocastBrowser>();
            browser.Browse("127.0.0.1:" + port + "?token=" + mayWatchTwo);
            stage.Until("the session that the token names", () => browser.Sessions.SequenceEqual(new[] { "secret" }));
            Check.That(browser.Message == "The relay at 127.0.0.1:" + port
                + " lists only the sessions that the token allows.", browser.Message);
            Console.WriteLine("      " + browser.Message);
            Publisher(lab, port, "later?token=" + TokenFor("--publish", "later"));
            stage.Until("the second session", () => browser.Sessions.SequenceEqual(new[] { "later", "secret" }));
            browser.Join("later");
            stage.UntilShown("frames of a session that the token names", 3);
            browser.Browse("127.0.0.1:" + port + "/secret?token=" + TokenFor("--subscribe", "absent"));
            stage.Until("the message that the token allows no session",
                () => browser.Message == "The relay at 127.0.0.1:" + port
                + " has no sessions that the token allows yet.");
            Check.That(browser.Sessions.Count == 0, string.Join(" ", browser.Sessions));
            Console.WriteLine("      " + browser.Message);
        }

        // Waits for a state with its message: one sentence, which the HUD shows.
        static void AssertMessage(Stage stage, HolocastState state, string sentence)
        {
            stage.Until(state + ": " + sentence, () => stage.Session.State == state
                && stage.Session.Message.Contains(sentence));
            Check.That((stage.Session.Message.EndsWith(".") || stage.Session.Message.EndsWith("?"))
                && !stage.Session.Message.Contains("\n"), "not a sentence: " + stage.Session.Message);
            stage.Until("the message in the HUD", () => stage.Hud.Text.Contains(stage.Session.Message));
            Console.WriteLine("      " + stage.Session.Message);
        }
    }
}
