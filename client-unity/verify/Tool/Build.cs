using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Text.Json;

namespace Holocast.Verify
{
    // Compiles the package like Unity: for each platform one assembly per .asmdef, with only the
    // references it declares. C# 8, warnings as errors.
    sealed class Build
    {
        // Symbols that Unity defines per platform.
        static readonly (string Name, string[] Defines)[] Platforms =
        {
            ("linux", new[] { "UNITY_STANDALONE", "UNITY_STANDALONE_LINUX", "ENABLE_LEGACY_INPUT_MANAGER" }),
            ("editor",
                new[] { "UNITY_EDITOR", "UNITY_EDITOR_WIN", "UNITY_STANDALONE", "UNITY_STANDALONE_WIN",
                "ENABLE_LEGACY_INPUT_MANAGER" }),
            // MRTK's template enables only the Input System.
            ("uwp",
                new[] { "UNITY_WSA", "ENABLE_IL2CPP", "ENABLE_WINMD_SUPPORT", "ENABLE_INPUT_SYSTEM",
                "HOLOCAST_INPUT_SYSTEM" }),
            ("android", new[] { "UNITY_ANDROID", "ENABLE_IL2CPP", "ENABLE_LEGACY_INPUT_MANAGER" }),
        };

        static readonly string[] Common =
            { "UNITY_2022_3_OR_NEWER", "UNITY_2022_1_OR_NEWER", "UNITY_5_3_OR_NEWER", "NET_STANDARD_2_1" };

        // Assemblies of optional packages, with the define that marks them as present.
        static readonly Dictionary<string, string[]> StubReferences = new Dictionary<string, string[]>
        {
            ["UnityEngine"] = new string[0],
            ["UnityEditor"] = new[] { "UnityEngine" },
            ["nunit.framework"] = new[] { "UnityEngine" },
            ["Windows"] = new string[0],
            ["Unity.InputSystem"] = new[] { "UnityEngine" },
            ["Unity.XR.ARFoundation"] = new[] { "UnityEngine" },
            ["Unity.XR.Interaction.Toolkit"] = new[] { "UnityEngine" },
            ["Microsoft.MixedReality.OpenXR"] = new[] { "UnityEngine", "Unity.XR.ARFoundation" },
            ["MixedReality.Toolkit.SpatialManipulation"] = new[] { "UnityEngine", "Unity.XR.Interaction.Toolkit" },
        };

        // Assemblies of a package that the stub merges into one.
        static readonly Dictionary<string, string> StubOf = new Dictionary<string, string>
        {
            ["Unity.XR.ARSubsystems"] = "Unity.XR.ARFoundation",
            ["Unity.XR.CoreUtils"] = "Unity.XR.ARFoundation",
            ["MixedReality.Toolkit.Core"] = "MixedReality.Toolkit.SpatialManipulation",
            ["UnityEngine.TestRunner"] = "nunit.framework",
            ["UnityEditor.TestRunner"] = "nunit.framework",
        };

        static readonly Dictionary<string, string[]> StubSources = new Dictionary<string, string[]>
        {
            ["UnityEngine"] = new[] { "UnityEngine" },
            ["UnityEditor"] = new[] { "UnityEditor" },
            ["nunit.framework"] = new[] { "NUnit" },
            ["Windows"] = new[] { "Uwp" },
            ["Unity.InputSystem"] = new[] { "Xr/InputSystem.cs" },
            ["Unity.XR.ARFoundation"] = new[] { "Xr/ArFoundation.cs" },
            ["Unity.XR.Interaction.Toolkit"] = new[] { "Xr/Interaction.cs" },
            ["Microsoft.MixedReality.OpenXR"] = new[] { "Xr/OpenXr.cs" },
            ["MixedReality.Toolkit.SpatialManipulation"] = new[] { "Xr/Mrtk.cs" },
        };

        readonly Folders folders;
        readonly string stubs;

        public Build(Folders folders)
        {
            this.folders = folders;
            stubs = Path.Combine(folders.Output, "stub");
        }

        public void Run()
        {
            Directory.CreateDirectory(stubs);
            foreach (string name in StubReferences.Keys)
            {
                string[] sources = StubSources[name].SelectMany(s => Sources(Path.Combine(folders.Verify, "Stub", s)))
                    .ToArray();
                Compile(name, stubs, sources, new string[0], StubReferences[name].Select(Stub), true, false);
            }
            List<Asmdef> asmdefs = Asmdef.Find(folders.Package);
            foreach (var (platform, defines) in Platforms)
            {
                // With and without MRTK3 and Microsoft's OpenXR plugin in the project. Tests of their
                // components run on Linux.
                foreach (string versions in platform == "uwp"
                    ? new[] { "", "HOLOCAST_MRTK3", "HOLOCAST_OPENXR", "HOLOCAST_MRTK3 HOLOCAST_OPENXR" }
                    : platform == "android" ? new[] { "", "HOLOCAST_ARFOUNDATION" }
                    : new[] { platform == "linux" ? "HOLOCAST_MRTK3 HOLOCAST_OPENXR" : "" })
                {
                    string variant = versions.Length == 0 || platform == "linux" ? platform : platform + "-"
                        + versions.Replace("HOLOCAST_", "").Replace(' ', '-').ToLowerInvariant();
                    // Microsoft's plugin brings AR Foundation.
                    string present = versions.Replace("HOLOCAST_OPENXR", "HOLOCAST_OPENXR HOLOCAST_ARFOUNDATION");
                    CompileAll(variant, asmdefs.Where(a => a.IsFor(platform)),
                        Common.Concat(defines).Concat(present.Split(' ', StringSplitOptions.RemoveEmptyEntries))
                        .ToArray(), present);
                }
            }
            // Tests and the verification program run on the Linux build.
            CompileAll("linux", asmdefs.Where(a => a.IsTest), Common.Concat(Platforms[0].Defines).ToArray(), "");
            string linux = Path.Combine(folders.Output, "linux");
            var libraries = Directory.GetFiles(linux, "Holocast.Client*.dll").Concat(StubReferences.Keys.Select(Stub))
                .ToArray();
            Compile("Holocast.Verify", linux, Sources(Path.Combine(folders.Verify, "EndToEnd")), Common, libraries,
                true, true);
            foreach (string stub in StubReferences.Keys)
            {
                File.Copy(Stub(stub), Path.Combine(linux, stub + ".dll"), true);
            }
            File.Copy(Newtonsoft, Path.Combine(linux, "Newtonsoft.Json.dll"), true);
            File.WriteAllText(Path.Combine(linux, "Holocast.Verify.runtimeconfig.json"),
                "{\"runtimeOptions\":{\"framework\":{\"name\":\"Microsoft.NETCore.App\",\"version\":\"3.1.0\"},"
                + "\"configProperties\":{\"System.Globalization.Invariant\":true,\"System.GC.Concurrent\":false}}}");
        }

        // Unity has it as the package com.unity.nuget.newtonsoft-json.
        string Newtonsoft => Path.Combine(folders.Tools, "dotnet/sdk/3.1.102/Newtonsoft.Json.dll");

        string Stub(string name)
        {
            return Path.Combine(stubs, name + ".dll");
        }

        void CompileAll(string variant, IEnumerable<Asmdef> asmdefs, string[] defines, string versions)
        {
            string output = Path.Combine(folders.Output, variant);
            Directory.CreateDirectory(output);
            var left = asmdefs.ToList();
            int count = left.Count;
            while (left.Count > 0)
            {
                // Compile references first.
                Asmdef next = left.FirstOrDefault(a => !a.References.Any(r => left.Any(o => o.Name == r)));
                if (next == null)
                {
                    throw new Failure("circular references between assemblies: "
                        + string.Join(", ", left.Select(a => a.Name)));
                }
                left.Remove(next);
                var references = new List<string> { Stub("UnityEngine") };
                if (defines.Contains("ENABLE_WINMD_SUPPORT"))
                {
                    references.Add(Stub("Windows"));
                }
                if (next.IsEditor)
                {
                    references.Add(Stub("UnityEditor"));
                    if (next.Precompiled.Length == 0)
                    {
                        references.Add(Newtonsoft);
                    }
                }
                foreach (string r in next.References.Concat(next.Precompiled.Select(Path.GetFileNameWithoutExtension)))
                {
                    string own = Path.Combine(output, r + ".dll");
                    if (r.StartsWith("Holocast"))
                    {
                        if (!File.Exists(own))
                        {
                            throw new Failure(next.Name + " refers to " + r + ", which is not compiled for " + variant);
                        }
                        references.Add(own);
                    }
                    else if (r == "Newtonsoft.Json")
                    {
                        references.Add(Newtonsoft);
                    }
                    else if (IsPresent(r, versions, defines))
                    {
                        references.Add(Stub(StubOf.TryGetValue(r, out string s) ? s : r));
                    }
                }
                Compile(next.Name, output, next.Sources, defines, references.Distinct(), next.AllowUnsafe, false);
            }
            Console.WriteLine("compiled " + variant + ": " + count + " assemblies");
        }

        // True if a project with these packages includes the assembly.
        static bool IsPresent(string assembly, string versions, string[] defines)
        {
            if (assembly == "Unity.InputSystem")
            {
                return defines.Contains("HOLOCAST_INPUT_SYSTEM");
            }
            if (assembly.StartsWith("MixedReality") || assembly == "Unity.XR.Interaction.Toolkit")
            {
                return versions.Contains("MRTK3");
            }
            if (assembly.StartsWith("Unity.XR."))
            {
                return versions.Contains("ARFOUNDATION");
            }
            if (assembly.StartsWith("Microsoft."))
            {
                return versions.Contains("OPENXR");
            }
            return true;
        }

        static string[] Sources(string path)
        {
            return path.EndsWith(".cs") ? new[] { path }
                : Directory.GetFiles(path, "*.cs", SearchOption.AllDirectories).OrderBy(s => s, StringComparer.Ordinal)
                .ToArray();
        }

        void Compile(string name, string output, string[] sources, string[] defines, IEnumerable<string> references,
            bool allowUnsafe, bool program)
        {
            string file = Path.Combine(output, name + ".dll");
            // Unity compiles against .NET Standard 2.1; the verification program needs more.
            bool standard = !program;
            string framework = Path.Combine(folders.Tools, "dotnet", "packs", standard
                ? "NETStandard.Library.Ref/2.1.0/ref/netstandard2.1"
                : "Microsoft.NETCore.App.Ref/3.1.0/ref/netcoreapp3.1");
            var lines = new List<string>
            {
                "-nologo", "-nostdlib", "-langversion:8", "-warn:4", "-warnaserror", "-deterministic",
                    "-debug:portable", "-optimize",
                // Suppresses warnings about fields that only Unity assigns, and about libraries for
                // an older .NET Standard, as Unity does.
                "-nowarn:0649,1701",
                "-target:" + (program ? "exe" : "library"),
                "-out:\"" + file + "\"",
            };
            if (allowUnsafe)
            {
                lines.Add("-unsafe");
            }
            if (defines.Length > 0)
            {
                lines.Add("-define:" + string.Join(";", defines));
            }
            lines.AddRange(Directory.GetFiles(framework, "*.dll").Concat(references).Select(r => "-r:\"" + r + "\""));
            lines.AddRange(sources.Select(s => "\"" + s + "\""));
            if (sources.Length == 0)
            {
                throw new Failure(name + " has no sources");
            }
            string response = Path.Combine(output, name + ".rsp");
            string text = string.Join("\n", lines);
            if (File.Exists(file) && File.Exists(response) && File.ReadAllText(response) == text
                && sources.Concat(references).All(s => File.GetLastWriteTimeUtc(s) < File.GetLastWriteTimeUtc(file)))
            {
                return;
            }
            File.WriteAllText(response, text);
            File.Delete(file);
            Run(Path.Combine(folders.Tools, "dotnet", "dotnet"),
                Path.Combine(folders.Tools, "dotnet/sdk/3.1.102/Roslyn/bincore/csc.dll"), "-noconfig", "@" + response);
        }

        public static string Run(string program, params string[] arguments)
        {
            var start = new ProcessStartInfo(program) { RedirectStandardOutput = true, RedirectStandardError = true };
            foreach (string a in arguments)
            {
                start.ArgumentList.Add(a);
            }
            using (Process p = Process.Start(start))
            {
                var errors = p.StandardError.ReadToEndAsync();
                string text = p.StandardOutput.ReadToEnd();
                p.WaitForExit();
                if (p.ExitCode != 0)
                {
                    throw new Failure(Path.GetFileName(program) + " failed\n" + text + errors.Result);
                }
                return text;
            }
        }
    }

    sealed class Asmdef
    {
        public string Path, Name;
        public string[] References, Precompiled, Sources, Include, Constraints;
        public bool AllowUnsafe;

        public bool IsEditor => Include.Length == 1 && Include[0] == "Editor";

        public bool IsTest => Constraints.Contains("UNITY_INCLUDE_TESTS");

        public bool IsFor(string platform)
        {
            // Include the editor's assemblies on Linux, where their tests run.
            return !IsTest && (platform == "editor" || platform == "linux" || Include.Length == 0);
        }

        // Finds all assembly definitions of a package, including its samples.
        public static List<Asmdef> Find(string package)
        {
            var all = new List<Asmdef>();
            foreach (string path in Directory.GetFiles(package, "*.asmdef", SearchOption.AllDirectories)
                .OrderBy(p => p, StringComparer.Ordinal))
            {
                JsonElement e = Json.Read(path);
                all.Add(new Asmdef
                {
                    Path = path,
                    Name = e.Text("name"),
                    References = e.Strings("references"),
                    Precompiled = e.Strings("precompiledReferences"),
                    Include = e.Strings("includePlatforms"),
                    Constraints = e.Strings("defineConstraints"),
                    AllowUnsafe = e.TryGetProperty("allowUnsafeCode", out JsonElement u) && u.GetBoolean(),
                });
            }
            // A source belongs to the nearest assembly definition above it.
            foreach (Asmdef a in all)
            {
                string folder = System.IO.Path.GetDirectoryName(a.Path) + "/";
                a.Sources = Directory.GetFiles(folder, "*.cs", SearchOption.AllDirectories)
                    .Where(s =>
                    !all.Any(o => o != a && o.Path.StartsWith(folder)
                    && s.StartsWith(System.IO.Path.GetDirectoryName(o.Path) + "/")))
                    .OrderBy(s => s, StringComparer.Ordinal).ToArray();
            }
            return all;
        }
    }
}
