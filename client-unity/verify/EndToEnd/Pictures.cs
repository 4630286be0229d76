using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.IO.Compression;
using System.Linq;
using System.Runtime.InteropServices;
using UnityEngine;
using UnityEngine.Stub;

namespace Holocast.Verify
{
    // Draws the scene's mesh renderers with the package's shaders on Vulkan, and compares the pictures with
    // a Go renderer's pictures of the same frame.
    static class Pictures
    {
        const int Width = 960, Height = 640;
        static readonly int[] Background = { 20, 22, 28 };

        public static int Run(string scratch)
        {
            string folder = Path.Combine(scratch, "pictures");
            Directory.CreateDirectory(folder);
            int failed = 0;
            foreach (var (layout, look) in new[] { ("a", HolocastLook.Surface), ("a", HolocastLook.Points),
                ("b", HolocastLook.Surface) })
            {
                using (var lab = new Lab())
                {
                    try
                    {
                        Compare(lab, folder, layout, look);
                    }
                    catch (Failed e)
                    {
                        Console.WriteLine("FAIL  layout " + layout + ", " + look + ": " + e.Message + "\n"
                            + lab.Output());
                        failed++;
                    }
                }
            }
            foreach (bool stereo in new[] { false, true })
            {
                using (var lab = new Lab())
                {
                    try
                    {
                        Sphere(lab, folder, stereo);
                    }
                    catch (Failed e)
                    {
                        Console.WriteLine("FAIL  360° video" + (stereo ? " for two eyes" : "") + ": " + e.Message + "\n"
                            + lab.Output());
                        failed++;
                    }
                }
            }
            return failed;
        }

        // Draws 360° video in several gaze directions and compares it with its planes.
        static void Sphere(Lab lab, string folder, bool stereo)
        {
            int port = Lab.FreePort();
            string url = "moqt://127.0.0.1:" + port + "/film";
            lab.Relay(port);
            lab.Start("capture-server", "--source", "equirect:" + Tests.Film(10, stereo), "--stereo", stereo
                ? "top-bottom" : "mono", "--http", "", url);
            var stage = new Stage(url);
            HolocastSphere sphere = stage.Hologram.AddComponent<HolocastSphere>();
            stage.Until("a picture", () => sphere.Shows);
            string scene = Path.Combine(folder, stereo ? "sphere2" : "sphere");
            Dump(sphere, scene);
            foreach (var (name, gaze) in new[]
            {
                ("ahead", Vector3.forward), ("right", Vector3.right), ("up", new Vector3(0.3f, 1, 0.3f).normalized),
                    ("down behind", new Vector3(-0.5f, -0.6f, -0.7f).normalized),
            })
            {
                Matrix4x4 view = View(stage.Eyes.position, stage.Eyes.position + gaze);
                foreach (string mode in new[] { "pass 0", "pass 1", "instanced", "multiview" })
                {
                    bool pass = mode.StartsWith("pass");
                    Matrix4x4[] eyes = pass ? new[] { view } : new[] { view, view };
                    byte[][] drawn = Draw(scene, (name + mode).Replace(' ', '-'), eyes, mode);
                    // lavapipe (Mesa 22.3) draws clipped triangles of every view into the first layer. The right
                    // eye's remain there, because they are drawn last.
                    for (int i = mode == "multiview" ? 1 : 0; i < eyes.Length; i++)
                    {
                        int eye = pass ? mode[5] - '0' : i;
                        double worst = Worst(drawn[i], view, sphere, stereo ? eye : 0, out int regions);
                        if (mode == "multiview")
                        {
                            worst = Math.Min(worst, Worst(drawn[0], view, sphere, stereo ? eye : 0, out regions));
                        }
                        string result = "360° video" + (stereo ? " for two eyes" : "") + ", " + name + ", "
                            + (pass ? "a pass per eye" : mode) + (eye == 0 ? ", left" : ", right") + ": worst of "
                            + regions + " regions off by " + worst.ToString("F2", CultureInfo.InvariantCulture);
                        Check.That(regions > 1500 && worst < 4, result);
                        Console.WriteLine("ok    " + result);
                    }
                }
            }
            Loop.Clear();
        }

        // A plane's interpolated sample for one eye. across, down: position as fractions of that eye's picture.
        static double Sample(HolocastSphere sphere, int plane, int eye, double across, double down)
        {
            Texture2D t = sphere.Textures.Plane(plane);
            int rows = sphere.Stereo ? t.height / 2 : t.height;
            double x = across * t.width - 0.5, y = Math.Max(0, Math.Min(rows - 1, down * rows - 0.5));
            int left = (int)Math.Floor(x), top = (int)Math.Floor(y);
            double Pixel(int u, int v) =>
                t.StubPixels[(eye * rows + Math.Min(v, rows - 1)) * t.width + (u + t.width) % t.width];
            double above = Pixel(left, top) + (x - left) * (Pixel(left + 1, top) - Pixel(left, top));
            double below = Pixel(left, top + 1) + (x - left) * (Pixel(left + 1, top + 1) - Pixel(left, top + 1));
            return above + (y - top) * (below - above);
        }

        // Largest difference between a region's mean color and that of the planes (which Tests compares with the film).
        static double Worst(byte[] drawn, Matrix4x4 view, HolocastSphere sphere, int eye, out int regions)
        {
            const int Region = 16;
            double worst = 0;
            regions = 0;
            for (int y = 0; y + Region <= Height; y += Region)
            {
                for (int x = 0; x + Region <= Width; x += Region)
                {
                    var sums = new double[3];
                    bool edge = false;
                    for (int v = y; v < y + Region; v += 3)
                    {
                        for (int u = x; u < x + Region; u += 3)
                        {
                            // The pixel's ray in eye coordinates, then in world coordinates: x right, y up, z
                            // forward.
                            double ex = (2 * (u + 0.5) / Width - 1) * Width / Height / Scale,
                                ey = (1 - 2 * (v + 0.5) / Height) / Scale, ez = -1;
                            double dx = view.m00 * ex + view.m10 * ey + view.m20 * ez, dy = view.m01 * ex
                                + view.m11 * ey + view.m21 * ez, dz = view.m02 * ex + view.m12 * ey + view.m22 * ez;
                            double across = Math.Atan2(dx, dz) / (2 * Math.PI) + 0.5,
                                down = 0.5 - Math.Atan2(dy, Math.Sqrt(dx * dx + dz * dz)) / Math.PI;
                            // Skip the seam, where brightness jumps, and the poles, where the whole width falls
                            // into one region.
                            edge |= across < 0.02 || across > 0.98 || down < 0.08 || down > 0.92;
                            double luma = (Sample(sphere, 0, eye, across, down) - 16) / 219,
                                cb = (Sample(sphere, 1, eye, across, down) - 128) / 224,
                                cr = (Sample(sphere, 2, eye, across, down) - 128) / 224;
                            double[] wanted = { luma + 1.5748 * cr, luma - 0.1873 * cb - 0.4681 * cr, luma
                                + 1.8556 * cb };
                            for (int c = 0; c < 3; c++)
                            {
                                sums[c] += drawn[3 * (v * Width + u) + c] - 255 * Math.Max(0, Math.Min(1, wanted[c]));
                            }
                        }
                    }
                    if (!edge)
                    {
                        regions++;
                        worst = Math.Max(worst, sums.Select(s => Math.Abs(s) / 36).Max());
                    }
                }
            }
            return worst;
        }

        static void Dump(HolocastSphere sphere, string scene)
        {
            MeshRenderer renderer = sphere.Surface;
            Mesh mesh = renderer.transform.GetComponent<MeshFilter>().sharedMesh;
            string name = Path.GetFileName(scene);
            File.WriteAllBytes(scene + ".indices", MemoryMarshal.AsBytes<uint>(mesh.StubIndices).ToArray());
            var lines = new List<string> { "object HolocastSphere " + name + ".indices "
                + Text(renderer.transform.localToWorldMatrix) };
            foreach (string property in new[] { "_HolocastEyes", "_HolocastFullRange", "_HolocastRed",
                "_HolocastBlue" })
            {
                lines.Add("float " + property + " "
                    + renderer.sharedMaterial.GetFloat(Shader.PropertyToID(property))
                    .ToString("R", CultureInfo.InvariantCulture));
            }
            foreach (string property in new[] { "_HolocastLuma", "_HolocastCb", "_HolocastCr" })
            {
                var texture = (Texture2D)renderer.sharedMaterial.GetTexture(Shader.PropertyToID(property));
                Check.That(texture.wrapModeU == TextureWrapMode.Repeat && texture.wrapModeV == TextureWrapMode.Clamp
                    && texture.filterMode == FilterMode.Bilinear, "a texture's sampler");
                File.WriteAllBytes(scene + "." + property, texture.StubPixels);
                lines.Add("texture " + property + " 1 " + texture.width + " " + texture.height + " " + name + "."
                    + property);
            }
            File.WriteAllLines(scene + ".scene", lines);
        }

        static void Compare(Lab lab, string folder, string layout, HolocastLook look)
        {
            int port = Lab.FreePort();
            string url = "moqt://127.0.0.1:" + port + "/picture";
            string[] frame = { "--width", "320", "--height", "288", "--layout", layout };
            lab.Relay(port);
            lab.Start("publisher", frame.Append(url).ToArray());
            var stage = new Stage(url, "", s => s.Points.Look = look);
            stage.UntilShown("frames", 3);
            stage.Run(0.1);
            bool surface = look == HolocastLook.Surface && layout == "a";
            Check.That(stage.Points.Views[0].IsSurface == surface, surface ? "no surface" : "a surface");
            string scene = Path.Combine(folder, layout + (surface ? ".surface" : ""));
            Matrix4x4 model = Dump(stage, scene)[0];
            Check.That(stage.Points.TryGetSubject(out Vector3 middle, out _), "no subject");

            // Offset from the eyes, to see the subject from the side.
            var mono = new[] { View(stage.Eyes.position + new Vector3(0.5f, 0.1f, 0), middle) };
            // Both eyes of a headset look in the same direction.
            var stereo = new[] { -0.032f, 0.032f }.Select(x => new Vector3(x, 0, 0))
                .Select(beside => View(stage.Eyes.position + beside, middle + beside)).ToArray();
            foreach (var (name, eyes) in new[] { ("mono", mono), ("instanced", stereo), ("multiview", stereo) })
            {
                byte[][] drawn = Draw(scene, name, eyes, name);
                for (int i = 0; i < eyes.Length; i++)
                {
                    byte[] wanted = Reference(frame, Clip() * eyes[i] * model, surface);
                    string result = "layout " + layout + (surface ? ", surface, " : ", points, ") + name
                        + (eyes.Length == 1 ? "" : i == 0 ? ", left" : ", right");
                    if (surface)
                    {
                        Alike(result, drawn[i], wanted);
                    }
                    else
                    {
                        Same(result, drawn[i], wanted);
                    }
                }
                if (eyes.Length == 2)
                {
                    double parallax = Parallax(drawn[0], drawn[1]);
                    // Expected at 1.5 m: 64 mm / (2 · 1.5 m · tan 33°) of the picture's height.
                    Check.That(parallax > 10 && parallax < 40, "parallax of " + parallax + " pixels");
                    Console.WriteLine("ok    layout " + layout + ": the eyes' pictures are " + parallax
                        + " pixels apart");
                }
            }
        }

        // Prints lavapipe's processor times for a picture of 60 000 and of 240 000 points, drawn as points, as a
        // surface, and as a surface of several cameras, and for the surface's compute shader, which runs once per
        // frame. Looks take turns; the medians of Rounds runs are printed.
        public static int Times(string scratch)
        {
            const int Rounds = 7;
            string folder = Path.Combine(scratch, "pictures");
            Directory.CreateDirectory(folder);
            var looks = new[] { "points", "surface", "surface of several" };
            var results = new List<string>();
            foreach (var (width, height) in new[] { (302, 274), (604, 545) })
            {
                Matrix4x4[] eyes = null;
                int points = 0;
                foreach (string look in looks)
                {
                    using (var lab = new Lab())
                    {
                        string scene = Path.Combine(folder, look.Replace(' ', '-'));
                        (eyes, points) = DumpFrame(lab, scene, width, height, look);
                    }
                }
                foreach (int views in new[] { 1, 2 })
                {
                    var drawn = looks.ToDictionary(l => l, l => new List<double>());
                    var computed = looks.ToDictionary(l => l, l => new List<double>());
                    for (int i = 0; i < Rounds * looks.Length; i++)
                    {
                        string look = looks[i % looks.Length], scene = Path.Combine(folder, look.Replace(' ', '-'));
                        Draw(scene, "time", eyes.Take(views).ToArray(), "", 10);
                        string[] told = lastTimes.Split(' ');
                        drawn[look].Add(double.Parse(told[0], CultureInfo.InvariantCulture));
                        computed[look].Add(double.Parse(told[1], CultureInfo.InvariantCulture));
                    }
                    results.Add(FormattableString.Invariant($"{{\"points\":{points},\"eyes\":{views},")
                        + "\"picture_ms\":{" + Medians(drawn) + "},\"frame_ms\":{" + Medians(computed) + "}}");
                }
            }
            Console.WriteLine("[" + string.Join(",\n ", results) + "]");
            return 0;
        }

        static string Medians(Dictionary<string, List<double>> of)
        {
            return string.Join(",", of.Select(p => "\"" + p.Key + "\":"
                + p.Value.OrderBy(v => v).ElementAt(p.Value.Count / 2).ToString("F1", CultureInfo.InvariantCulture)));
        }

        // Dumps a frame of the synthetic performer; returns views of both eyes and the number of points.
        static (Matrix4x4[], int) DumpFrame(Lab lab, string scene, int width, int height, string look)
        {
            int port = Lab.FreePort();
            string url = "moqt://127.0.0.1:" + port + "/times";
            lab.Relay(port);
            lab.Start("publisher", "--width", width.ToString(), "--height", height.ToString(), "--fps", "1", url);
            var stage = new Stage(url, "", s =>
            {
                s.Points.Look = look == "points" ? HolocastLook.Points : HolocastLook.Surface;
                s.Points.MaxPoints = int.MaxValue;
            });
            stage.UntilShown("frames", 1);
            stage.Points.Views[0].SetOthers(look == "surface of several");
            Dump(stage, scene);
            Check.That(stage.Points.TryGetSubject(out Vector3 middle, out _), "no subject");
            var eyes = new[] { -0.032f, 0.032f }.Select(x => new Vector3(x, 0, 0))
                .Select(beside => View(stage.Eyes.position + beside, middle + beside)).ToArray();
            return (eyes, stage.Points.Points);
        }

        // Draws a session as points and as surfaces, from the left, the front and the right, at several distances,
        // and writes the pictures to a folder.
        public static int Looks(string scratch, string source, string output)
        {
            string folder = Path.Combine(scratch, "pictures"), scene = Path.Combine(folder, "looks");
            Directory.CreateDirectory(folder);
            Directory.CreateDirectory(output);
            using (var lab = new Lab())
            {
                Stage stage = Studio(lab, source);
                Complete(stage);
                Dump(stage, scene);
                // The same frame as points.
                File.WriteAllLines(scene + "-points.scene", File.ReadLines(scene + ".scene")
                    .Where(l => !l.StartsWith("compute ")).Select(l => l.Replace(" HOLOCAST_SURFACE", "")));
                Check.That(stage.Points.TryGetSubject(out Vector3 middle, out Vector3 along), "no subject");
                int points = stage.Points.Points, cameras = stage.Points.Views.Count;
                lab.Dispose();
                foreach (float distance in new[] { 0.7f, 1.5f, 4 })
                {
                    foreach (int angle in new[] { -35, 0, 35 })
                    {
                        Vector3 to = Quaternion.AngleAxis(angle, Vector3.up) * along;
                        var eyes = new[] { View(middle - distance * to + Vector3.up * 0.1f * distance, middle) };
                        string name = Path.Combine(output, FormattableString.Invariant($"{distance}m_{angle}"));
                        Png(name + "_points.png", Draw(scene + "-points", "looks", eyes)[0]);
                        Png(name + "_surface.png", Draw(scene, "looks", eyes)[0]);
                    }
                }
                Console.WriteLine(points + " points of " + cameras + " cameras");
            }
            return 0;
        }

        // Waits for a frame with nearly all points: on a busy machine the capture server omits some.
        static void Complete(Stage stage)
        {
            int most = 0, ticks = 0;
            stage.Until("a complete frame", () =>
            {
                most = Math.Max(most, stage.Points.Points);
                return ++ticks > 300 && stage.Points.Points >= 0.98 * most;
            });
        }

        // A session whose cameras all show frames at their poses. source: may be followed by flags.
        static Stage Studio(Lab lab, string source)
        {
            int port = Lab.FreePort();
            string url = "moqt://127.0.0.1:" + port + "/studio";
            lab.Relay(port);
            lab.Start("capture-server", source.Split(' ').Prepend("--source").Concat(new[] { "--fps", "5", url })
                .ToArray());
            var stage = new Stage(url, "", s => s.Points.MaxPoints = int.MaxValue);
            if (!IsSphere(source))
            {
                stage.Until("all cameras", () => stage.Points.Views.Count > 0
                    && stage.Points.Views.All(v => v.Points > 0 && v.HasSubject));
                // The capture server locates LiveScan3D's marker box within seconds.
                stage.Until("the cameras' poses", () => stage.Points.Views.Select(v => v.Transform.position).Distinct()
                    .Count() == stage.Points.Views.Count);
                stage.Run(1);
            }
            return stage;
        }

        static bool IsSphere(string source) => source.StartsWith("equirect:") || source.StartsWith("tiles:");

        // Renders a picture of a session for the README.
        public static int Show(string scratch, string source, string output)
        {
            string folder = Path.Combine(scratch, "pictures");
            Directory.CreateDirectory(folder);
            using (var lab = new Lab())
            {
                Stage stage = Studio(lab, source);
                if (IsSphere(source))
                {
                    ShowSphere(stage, Path.Combine(folder, "panorama"), output);
                    return 0;
                }
                string scene = Path.Combine(folder, "studio");
                Dump(stage, scene);
                stage.Points.TryGetSubject(out Vector3 middle, out Vector3 along);
                Vector3 from = stage.Points.Views[0].Transform.position;
                // From the first camera's position, like the web viewer's initial view.
                byte[] picture = Draw(scene, "show",
                    new[] { View(from, from + along * Vector3.Dot(middle - from, along)
                    + Vector3.up * (middle.y - from.y)) })[0];
                Png(output, picture);
                Console.WriteLine(output + ": " + stage.Points.Points + " points of " + stage.Points.Views.Count
                    + " cameras");
            }
            return 0;
        }

        // Renders the view straight ahead of the left eye after some seconds of 360° video, and prints
        // statistics.
        static void ShowSphere(Stage stage, string scene, string output)
        {
            HolocastSphere sphere = stage.Hologram.AddComponent<HolocastSphere>();
            var clock = Stopwatch.StartNew();
            stage.Until("a picture", () => sphere.Shows);
            double first = clock.Elapsed.TotalSeconds;
            for (int i = 0; i < 8; i++)
            {
                stage.Run(2);
                stage.Session.TryGetSphereStatistics(out HolocastStatistics s);
                string figures = FormattableString.Invariant($"FPS {s.Fps:F1}, delay p50 {s.FrameDelayP50:F0} ms")
                    + FormattableString.Invariant($", p95 {s.FrameDelayP95:F0} ms, {s.MbitPerSecond:F2} Mbit/s")
                    + FormattableString.Invariant($", decode {s.DecodeMs:F1} ms, tiles cover {100 * s.TileHits:F0} %");
                Console.WriteLine(figures + ", " + s.FramesShown + " shown of " + s.Frames + ", " + s.FramesLost
                    + " lost, " + s.FramesSkipped + " skipped, " + s.FramesDamaged + " damaged");
            }
            Dump(sphere, scene);
            Matrix4x4 ahead = View(stage.Eyes.position, stage.Eyes.position + Vector3.forward);
            Png(output, Draw(scene, "show", new[] { ahead, ahead })[0]);
            Console.WriteLine(output + ": " + sphere.Width + "×" + sphere.Height + (sphere.Stereo ? ", two eyes" : "")
                + ", first picture after " + first.ToString("F2", CultureInfo.InvariantCulture) + " s");
        }

        // Writes every visible mesh renderer to files; returns their matrices.
        static List<Matrix4x4> Dump(Stage stage, string scene)
        {
            var lines = new List<string>();
            var models = new List<Matrix4x4>();
            foreach (CameraPoints view in stage.Points.Views)
            {
                MeshRenderer renderer = view.Transform.GetComponent<MeshRenderer>();
                if (!renderer.enabled)
                {
                    continue;
                }
                Material material = renderer.sharedMaterial;
                Mesh mesh = view.Transform.GetComponent<MeshFilter>().sharedMesh;
                var submesh = mesh.GetSubMesh(0);
                bool cloud = material.IsKeywordEnabled("HOLOCAST_CLOUD");
                bool surface = material.IsKeywordEnabled("HOLOCAST_SURFACE");
                string name = scene + "." + view.Camera, file = Path.GetFileName(name);
                GraphicsBuffer words = material.StubBuffer(Shader.PropertyToID("_HolocastWords"));
                File.WriteAllBytes(name + ".words", words.StubBytes.ToArray());
                File.WriteAllBytes(name + ".indices",
                    MemoryMarshal.AsBytes<uint>(mesh.StubIndices.AsSpan(submesh.indexStart, submesh.indexCount))
                    .ToArray());
                Matrix4x4 model = view.Transform.localToWorldMatrix;
                models.Add(model);
                lines.Add("object HolocastPoints " + file + ".indices " + Text(model)
                    + (cloud ? " HOLOCAST_CLOUD" : surface ? " HOLOCAST_SURFACE" : ""));
                foreach (string property in new[] { "_HolocastEdge", "_HolocastNearer" })
                {
                    lines.Add("float " + property + " " + material.GetFloat(Shader.PropertyToID(property))
                        .ToString("R", CultureInfo.InvariantCulture));
                }
                if (surface)
                {
                    GraphicsBuffer corners = material.StubBuffer(Shader.PropertyToID("_HolocastCorners"));
                    GraphicsBuffer facets = material.StubBuffer(Shader.PropertyToID("_HolocastFacets"));
                    StubDispatch d = corners.StubWritten;
                    Check.That(d.Values[Shader.PropertyToID("_HolocastWords")].Equals(words)
                        && d.Values[Shader.PropertyToID("_HolocastFacets")].Equals(facets)
                        && d.Values[Shader.PropertyToID("_HolocastRays")]
                        .Equals(material.GetTexture(Shader.PropertyToID("_HolocastRays"))), "quads of other points");
                    var grid = (GraphicsBuffer)d.Values[Shader.PropertyToID("_HolocastGrid")];
                    File.WriteAllBytes(name + ".grid", grid.StubBytes.ToArray());
                    lines.Add("buffer _HolocastGrid " + file + ".grid");
                    lines.Add("room _HolocastCorners " + corners.StubBytes.Length);
                    lines.Add("room _HolocastFacets " + facets.StubBytes.Length);
                    lines.Add("compute " + d.Shader + " " + d.Groups);
                    lines.Add("int _HolocastCount " + d.Ints[Shader.PropertyToID("_HolocastCount")]);
                    lines.Add("int _HolocastStride " + d.Ints[Shader.PropertyToID("_HolocastStride")]);
                    lines.Add("float _HolocastSpacing " + d.Floats[Shader.PropertyToID("_HolocastSpacing")]
                        .ToString("R", CultureInfo.InvariantCulture));
                }
                lines.Add("buffer _HolocastWords " + file + ".words");
                if (!cloud)
                {
                    var texture = (Texture2D)material.GetTexture(Shader.PropertyToID("_HolocastRays"));
                    File.WriteAllBytes(name + ".rays", texture.StubPixels);
                    lines.Add("texture _HolocastRays 8 " + texture.width + " " + texture.height + " " + file + ".rays");
                }
            }
            File.WriteAllLines(scene + ".scene", lines);
            return models;
        }

        // World to eye in Unity's convention: right-handed, looking along −z.
        static Matrix4x4 View(Vector3 from, Vector3 at)
        {
            Quaternion r = Quaternion.Inverse(Quaternion.LookRotation(at - from, Vector3.up));
            Matrix4x4 m = Matrix4x4.TRS(r * -from, r, Vector3.one);
            return new Matrix4x4 { m00 = 1, m11 = 1, m22 = -1, m33 = 1 } * m;
        }

        static string lastTimes;

        static readonly float Scale = 1 / MathF.Tan(33 * Mathf.Deg2Rad);

        // Projection with y up, for the reference renderer.
        static Matrix4x4 Clip()
        {
            return new Matrix4x4 { m00 = Scale * Height / Width, m11 = Scale, m32 = -1, m22 = -1, m23 = -0.1f };
        }

        // Projection with y down and reversed depth, as for Vulkan, and for Direct3D when Unity renders to a
        // texture.
        static Matrix4x4 Projection()
        {
            return new Matrix4x4 { m00 = Scale * Height / Width, m11 = -Scale, m32 = -1, m23 = 0.05f };
        }

        // mode: "multiview", "pass 0" or "pass 1"; else instanced if there are two eyes.
        // count: further drawings to measure lastTimes, the processor times of each and of the compute shader in ms.
        static byte[][] Draw(string scene, string name, Matrix4x4[] eyes, string mode = "", int count = 0)
        {
            string camera = scene + "." + name + ".camera", output = scene + "." + name;
            var lines = new List<string> { "size " + Width + " " + Height, "background "
                + string.Join(" ", Background.Select(b => (b / 255f).ToString("R", CultureInfo.InvariantCulture))) };
            lines.AddRange(eyes.Select(e => "eye " + Text(e) + " " + Text(Projection())));
            if (mode == "multiview" || mode.StartsWith("pass"))
            {
                lines.Add(mode);
            }
            File.WriteAllLines(camera, lines);
            byte[] told = Execute(Path.Combine(Lab.Root, "build/unity/draw/release/draw"),
                Path.Combine(Lab.Root, "build/unity/out/shaders"), scene + ".scene", camera, output, count.ToString());
            lastTimes = System.Text.Encoding.ASCII.GetString(told).Trim();
            return eyes.Select((_, i) => Ppm(output + "." + i + ".ppm")).ToArray();
        }

        // Reference picture in RGBA, transparent where there is nothing.
        static byte[] Reference(string[] frame, Matrix4x4 m, bool surface)
        {
            float[] columns = { m.m00, m.m10, m.m20, m.m30, m.m01, m.m11, m.m21, m.m31, m.m02, m.m12, m.m22, m.m32,
                m.m03, m.m13, m.m23, m.m33 };
            string matrix = string.Join(",", columns.Select(c => c.ToString("R", CultureInfo.InvariantCulture)));
            // The reference renders the grid; layouts B and C hold the same points.
            return Execute(Path.Combine(Lab.Binaries, "publisher"), "--width", frame[1], "--height", frame[3],
                "--viewport", Width + "x" + Height, "--look", surface ? "surface" : "points", "--reference", matrix);
        }

        static void Same(string what, byte[] drawn, byte[] wanted)
        {
            int covered = 0, equal = 0, empty = 0, stray = 0;
            double worst = 0;
            const int Region = 16;
            for (int y = 0; y + Region <= Height; y += Region)
            {
                for (int x = 0; x + Region <= Width; x += Region)
                {
                    int opaque = 0, other = 0;
                    var sums = new double[3];
                    for (int v = y; v < y + Region; v++)
                    {
                        for (int u = x; u < x + Region; u++)
                        {
                            int d = 3 * (v * Width + u), w = 4 * (v * Width + u);
                            bool same = true, shows = false;
                            for (int c = 0; c < 3; c++)
                            {
                                sums[c] += drawn[d + c] - wanted[w + c];
                                same &= Math.Abs(drawn[d + c] - wanted[w + c]) <= 4;
                                shows |= Math.Abs(drawn[d + c] - Background[c]) > 2;
                            }
                            if (wanted[w + 3] > 0)
                            {
                                opaque++;
                                covered++;
                                equal += same ? 1 : 0;
                            }
                            else
                            {
                                empty++;
                            }
                            other += shows ? 1 : 0;
                        }
                    }
                    if (opaque == Region * Region)
                    {
                        worst = Math.Max(worst, sums.Select(s => Math.Abs(s) / opaque).Max());
                    }
                    else if (opaque == 0)
                    {
                        stray += other;
                    }
                }
            }
            double share = equal / (double)Math.Max(1, covered);
            string result = what + ": " + (100 * share).ToString("F2", CultureInfo.InvariantCulture) + " % of "
                + covered + " pixels equal, worst region off by "
                + worst.ToString("F2", CultureInfo.InvariantCulture) + ", " + stray + " stray pixels of " + empty;
            Check.That(covered > 50000 && share > 0.9 && worst < 8 && stray <= empty / 10000, result);
            Console.WriteLine("ok    " + result);
        }

        // Compares surfaces by structural similarity.
        static void Alike(string what, byte[] drawn, byte[] wanted)
        {
            int covered = 0, holes = 0, stray = 0;
            for (int i = 0; i < Width * Height; i++)
            {
                bool opaque = wanted[4 * i + 3] > 0, shows = false;
                for (int c = 0; c < 3; c++)
                {
                    shows |= Math.Abs(drawn[3 * i + c] - Background[c]) > 2;
                }
                covered += opaque ? 1 : 0;
                holes += opaque && !shows ? 1 : 0;
                stray += shows && !opaque ? 1 : 0;
            }
            double ssim = Similarity(drawn, wanted);
            string result = FormattableString.Invariant($"{what}: SSIM {ssim:F4}, {covered} pixels covered")
                + ", " + holes + " missing, " + stray + " stray";
            // Edges may differ by a pixel, as the reference draws four samples per pixel.
            Check.That(ssim >= 0.95 && covered > 50000 && holes < covered / 100 && stray < covered / 100, result);
            Console.WriteLine("ok    " + result);
        }

        static double Luma(byte[] b, int at) => 0.2126 * b[at] + 0.7152 * b[at + 1] + 0.0722 * b[at + 2];

        // Mean structural similarity of the luma (Wang et al., 2004) over windows of 8×8 pixels that the
        // reference covers, as the web viewer's tests measure it.
        static double Similarity(byte[] drawn, byte[] wanted)
        {
            const int Side = 8, Step = 4;
            const double C1 = 0.01 * 255 * 0.01 * 255, C2 = 0.03 * 255 * 0.03 * 255, N = Side * Side;
            double sum = 0;
            int windows = 0;
            for (int y = 0; y + Side <= Height; y += Step)
            {
                for (int x = 0; x + Side <= Width; x += Step)
                {
                    double sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
                    int opaque = 0;
                    for (int k = 0; k < Side * Side; k++)
                    {
                        int at = (y + k / Side) * Width + x + k % Side;
                        double a = Luma(drawn, 3 * at), b = Luma(wanted, 4 * at);
                        opaque += wanted[4 * at + 3] > 0 ? 1 : 0;
                        sa += a;
                        sb += b;
                        saa += a * a;
                        sbb += b * b;
                        sab += a * b;
                    }
                    if (opaque < Side * Side)
                    {
                        continue;
                    }
                    double ma = sa / N, mb = sb / N;
                    double va = saa / N - ma * ma, vb = sbb / N - mb * mb, cov = sab / N - ma * mb;
                    sum += (2 * ma * mb + C1) * (2 * cov + C2) / ((ma * ma + mb * mb + C1) * (va + vb + C2));
                    windows++;
                }
            }
            return sum / windows;
        }

        // The shift to the left, in pixels, at which the second picture best matches the first.
        static int Parallax(byte[] left, byte[] right)
        {
            int best = 0;
            double least = double.MaxValue;
            for (int shift = -80; shift <= 80; shift++)
            {
                double sum = 0;
                int n = 0;
                for (int y = 0; y < Height; y += 4)
                {
                    for (int x = 100; x < Width - 100; x += 2)
                    {
                        int a = 3 * (y * Width + x), b = 3 * (y * Width + x - shift);
                        sum += Math.Abs(left[a] - right[b]) + Math.Abs(left[a + 1] - right[b + 1])
                            + Math.Abs(left[a + 2] - right[b + 2]);
                        n++;
                    }
                }
                if (sum / n < least)
                {
                    least = sum / n;
                    best = shift;
                }
            }
            return best;
        }

        static byte[] Execute(string program, params string[] arguments)
        {
            var start = new ProcessStartInfo(program) { RedirectStandardOutput = true, RedirectStandardError = true };
            start.Environment.Remove("LD_LIBRARY_PATH");
            foreach (string a in arguments)
            {
                start.ArgumentList.Add(a);
            }
            using (Process p = Process.Start(start))
            using (var output = new MemoryStream())
            {
                var errors = p.StandardError.ReadToEndAsync();
                p.StandardOutput.BaseStream.CopyTo(output);
                p.WaitForExit();
                Check.That(p.ExitCode == 0, Path.GetFileName(program) + ": " + errors.Result);
                return output.ToArray();
            }
        }

        static byte[] Ppm(string path)
        {
            byte[] b = File.ReadAllBytes(path);
            return b.AsSpan(b.Length - 3 * Width * Height).ToArray();
        }

        static string Text(Matrix4x4 m)
        {
            float[] rows = { m.m00, m.m01, m.m02, m.m03, m.m10, m.m11, m.m12, m.m13, m.m20, m.m21, m.m22, m.m23, m.m30,
                m.m31, m.m32, m.m33 };
            return string.Join(" ", rows.Select(v => v.ToString("R", CultureInfo.InvariantCulture)));
        }

        static void Png(string path, byte[] rgb)
        {
            using (var file = File.Create(path))
            {
                file.Write(new byte[] { 137, 80, 78, 71, 13, 10, 26, 10 });
                var header = new byte[13];
                Big(header, 0, Width);
                Big(header, 4, Height);
                header[8] = 8;
                header[9] = 2;
                Chunk(file, "IHDR", header);
                using (var data = new MemoryStream())
                {
                    data.Write(new byte[] { 0x78, 0xda });
                    uint a = 1, b = 0;
                    using (var deflate = new DeflateStream(data, CompressionLevel.Optimal, true))
                    {
                        var line = new byte[1 + 3 * Width];
                        for (int y = 0; y < Height; y++)
                        {
                            // The Sub filter improves compression.
                            line[0] = 1;
                            for (int i = 0; i < 3 * Width; i++)
                            {
                                int at = 3 * Width * y + i;
                                line[1 + i] = (byte)(rgb[at] - (i < 3 ? 0 : rgb[at - 3]));
                            }
                            deflate.Write(line);
                            foreach (byte v in line)
                            {
                                a = (a + v) % 65521;
                                b = (b + a) % 65521;
                            }
                        }
                    }
                    var sum = new byte[4];
                    Big(sum, 0, (int)(b << 16 | a));
                    data.Write(sum);
                    Chunk(file, "IDAT", data.ToArray());
                }
                Chunk(file, "IEND", new byte[0]);
            }
        }

        static void Chunk(Stream to, string type, byte[] data)
        {
            byte[] body = System.Text.Encoding.ASCII.GetBytes(type).Concat(data).ToArray();
            var number = new byte[4];
            Big(number, 0, data.Length);
            to.Write(number);
            to.Write(body);
            uint crc = 0xffffffff;
            foreach (byte b in body)
            {
                crc ^= b;
                for (int k = 0; k < 8; k++)
                {
                    crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
                }
            }
            Big(number, 0, (int)~crc);
            to.Write(number);
        }

        static void Big(byte[] b, int at, int v)
        {
            b[at] = (byte)(v >> 24);
            b[at + 1] = (byte)(v >> 16);
            b[at + 2] = (byte)(v >> 8);
            b[at + 3] = (byte)v;
        }
    }
}
