using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Text;
using System.Text.RegularExpressions;

namespace Holocast.Verify
{
    // Compiles every variant of every shader with Microsoft's compiler, warnings as errors, and the
    // variants of the picture tests to SPIR-V.
    sealed class Shaders
    {
        // Limit of wine's command line.
        const int MostArguments = 240;

        readonly Folders folders;
        readonly string output;

        public Shaders(Folders folders)
        {
            this.folders = folders;
            output = Path.Combine(folders.Output, "shaders");
        }

        // URP, next to its core, if they have been fetched.
        string Universal => Path.Combine(folders.Tools, "urp/Packages/com.unity.render-pipelines.universal");

        public void Run()
        {
            Directory.CreateDirectory(output);
            Console.WriteLine(Directory.Exists(Universal) ? "URP " + Version() + "'s shader library"
                : "no URP: its passes are compiled with a stand-in for its shader library (see README.md)");
            // Without clients, wine's server ends after some seconds, and would refuse the next one meanwhile.
            Server("--persistent=60");
            try
            {
                foreach (string path in Directory.GetFiles(Path.Combine(folders.Package, "Shaders"), "*.shader",
                    SearchOption.AllDirectories).OrderBy(p => p, StringComparer.Ordinal))
                {
                    Shader(path);
                }
                foreach (string path in Directory.GetFiles(Path.Combine(folders.Package, "Shaders"), "*.compute",
                    SearchOption.AllDirectories).OrderBy(p => p, StringComparer.Ordinal))
                {
                    Compute(path);
                }
            }
            finally
            {
                Server("--kill");
            }
        }

        // A kernel; its name is the entry point.
        void Compute(string path)
        {
            string name = Path.GetFileNameWithoutExtension(path), flat = Path.Combine(output, name + ".hlsl");
            var source = new StringBuilder();
            string kernel = "";
            foreach (string line in File.ReadAllLines(path))
            {
                if (line.StartsWith("#pragma kernel "))
                {
                    kernel = line.Substring(15);
                    continue;
                }
                Flatten(line, source);
            }
            File.WriteAllText(flat, source.ToString());
            string told = Fxc(new List<string> { flat, kernel, "cs_5_0" });
            Console.WriteLine(name + ": Microsoft's compiler accepts it, "
                + Regex.Match(told, @"\d+ instructions").Value);
            Build.Run("glslangValidator", "-D", "-V", "-S", "comp", "-e", kernel, "--source-entrypoint", kernel,
                "--auto-map-bindings", "-o", Path.Combine(output, name + ".comp.spv"), flat);
        }

        string Version()
        {
            string package = File.ReadAllText(Path.Combine(Universal, "package.json"));
            return Regex.Match(package, "\"version\": *\"([^\"]+)").Groups[1].Value;
        }

        void Shader(string path)
        {
            string name = Path.GetFileNameWithoutExtension(path);
            string[] subShaders = Regex.Split(File.ReadAllText(path), @"^    SubShader\n", RegexOptions.Multiline);
            int urp = 0, builtIn = 0;
            foreach (string subShader in subShaders.Skip(1))
            {
                bool universal = subShader.Contains("\"RenderPipeline\" = \"UniversalPipeline\"");
                if (universal && !subShader.Contains("PackageRequirements { \"com.unity.render-pipelines.universal\""))
                {
                    throw new Failure(name + ": its SubShader for URP breaks projects without URP");
                }
                if (subShader.Contains("\"RenderType\" = \"Background\"")
                    && !subShader.Contains("\"Queue\" = \"Transparent-499\""))
                {
                    throw new Failure(name + " is drawn before the skybox, which covers it");
                }
                if (!subShader.Contains("ZWrite On"))
                {
                    throw new Failure(name + " has no ZWrite On");
                }
                string shared = Regex.Match(subShader, @"HLSLINCLUDE\n(.*?)ENDHLSL",
                    RegexOptions.Singleline).Groups[1].Value;
                var modes = new List<string>();
                foreach (string pass in Regex.Split(subShader, @"^        Pass\n", RegexOptions.Multiline).Skip(1))
                {
                    string program = Regex.Match(pass, @"(?:CG|HLSL)PROGRAM\n(.*?)END(?:CG|HLSL)",
                        RegexOptions.Singleline).Groups[1].Value;
                    string mode = Regex.Match(pass, "\"LightMode\" = \"(\\w+)\"").Groups[1].Value;
                    modes.Add(mode);
                    Pass(universal ? name + ".URP." + mode : name, shared + program, universal);
                }
                urp += universal ? modes.Count : 0;
                builtIn += universal ? 0 : modes.Count;
                string wanted = !universal ? "" : subShader.Contains("\"Queue\" = \"Geometry\"")
                    ? "UniversalForwardOnly DepthOnly DepthNormalsOnly ShadowCaster" : "UniversalForwardOnly";
                if (string.Join(" ", modes) != wanted)
                {
                    throw new Failure(name + " has the passes " + string.Join(" ", modes) + " instead of " + wanted);
                }
            }
            if (urp == 0 || builtIn != 1)
            {
                throw new Failure(name + " has " + urp + " passes for URP and " + builtIn
                    + " for the built-in pipeline");
            }
        }

        void Pass(string name, string program, bool universal)
        {
            var axes = new List<string[]> { new[] { "", "STEREO_INSTANCING_ON", "STEREO_MULTIVIEW_ON" },
                new[] { "", "UNITY_COLORSPACE_GAMMA" } };
            bool real = universal && Directory.Exists(Universal);
            string flat = Path.Combine(real ? Path.Combine(folders.Tools, "urp") : output, name + ".hlsl");
            var source = new StringBuilder();
            string vertex = "", fragment = "";
            foreach (string line in program.Split('\n'))
            {
                string[] words = line.Split(new[] { ' ', '\t' }, StringSplitOptions.RemoveEmptyEntries);
                if (words.Length == 0 || words[0] != "#pragma")
                {
                    if (real && line.Contains("#include \"Packages/com.unity."))
                    {
                        // URP's own warnings: macro redefinition, loss of precision.
                        source.Append("#pragma warning(disable : 1519 3205)\n").Append(line.Trim())
                            .Append("\n#pragma warning(default : 1519 3205)\n");
                    }
                    else
                    {
                        Flatten(line, source);
                    }
                    continue;
                }
                switch (words[1])
                {
                    case "vertex": vertex = words[2]; break;
                    case "fragment": fragment = words[2]; break;
                    case "target":
                        if (words[2] != "4.5")
                        {
                            throw new Failure(name + ": target " + words[2] + " has no structured buffers");
                        }
                        break;
                    case "multi_compile_instancing": axes.Add(new[] { "", "INSTANCING_ON" }); break;
                    case "multi_compile_local": axes.Add(words.Skip(2).Select(w => w == "_" ? "" : w).ToArray()); break;
                    default: throw new Failure(name + ": unsupported directive " + line.Trim());
                }
            }
            File.WriteAllText(flat, source.ToString());
            string own = program + string.Concat(Regex.Matches(program, @"Packages/dev\.holocast\.client/[^""]+")
                .Select(m => File.ReadAllText(Path.Combine(folders.Client, m.Value))));
            // Constructs that lose an eye on devices, for example because they support only one of
            // Unity's stereo modes.
            foreach (string bad in new[] { "#pragma geometry", "multi_compile_fog", "STEREO_INSTANCING_ON" })
            {
                if (own.Contains(bad))
                {
                    throw new Failure(name + " has " + bad);
                }
            }
            foreach (string wanted in new[]
            {
                "UNITY_VERTEX_INPUT_INSTANCE_ID", "UNITY_VERTEX_OUTPUT_STEREO", "UNITY_SETUP_INSTANCE_ID(",
                    "UNITY_INITIALIZE_VERTEX_OUTPUT_STEREO(",
                "UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(",
            })
            {
                if (!own.Contains(wanted))
                {
                    throw new Failure(name + " has no " + wanted);
                }
            }
            var compilations = new List<string[]>();
            foreach (string[] variant in Product(axes))
            {
                // Only Vulkan has multiview, but Unity compiles it with Microsoft's compiler too.
                string api = real && variant.Contains("STEREO_MULTIVIEW_ON") ? "VULKAN" : "D3D11";
                IEnumerable<string> defines = variant.Where(v => v.Length > 0)
                    .Concat(new[] { "SHADER_API_" + api, "UNITY_REVERSED_Z", "SHADER_TARGET=45" });
                if (real)
                {
                    defines = defines.Concat(new[] { "", "2", "3", "4", "3x3", "4x4" }
                        .Select(n => "half" + n + "=min16float" + n));
                }
                foreach ((string entry, string profile, string stage) in new[] {
                    (vertex, "vs_5_0", "VERTEX"), (fragment, "ps_5_0", "FRAGMENT") })
                {
                    compilations.Add(new[] { flat, entry, profile }.Concat(defines.Append("SHADER_STAGE_" + stage)
                        .Select(d => d.Contains("=") ? d : d + "=1")).ToArray());
                }
            }
            var told = new List<string>();
            for (int from = 0; from < compilations.Count;)
            {
                var arguments = new List<string>();
                for (; from < compilations.Count && arguments.Count + compilations[from].Length < MostArguments; from++)
                {
                    if (arguments.Count > 0)
                    {
                        arguments.Add("--");
                    }
                    arguments.AddRange(compilations[from]);
                }
                told.AddRange(Fxc(arguments).Split('\n', StringSplitOptions.RemoveEmptyEntries));
            }
            if (told.Count != compilations.Count)
            {
                throw new Failure(name + ": " + told.Count + " of " + compilations.Count
                    + " compilations told of their code");
            }
            int most = told.Select(t => int.Parse(Regex.Match(t, @"(\d+) instructions").Groups[1].Value)).Max();
            Console.WriteLine(name + ": Microsoft's compiler accepts all " + compilations.Count / 2
                + " variants, at most " + most + " instructions");
            if (universal)
            {
                return;
            }

            // SPIR-V of the variants drawn in the picture tests.
            foreach (string stage in new[] { "vert", "frag" })
            {
                foreach (string[] variant in Product(axes.Skip(2).Where(a => !a.Contains("INSTANCING_ON"))
                    .Prepend(axes[0])))
                {
                    string[] on = variant.Where(v => v.Length > 0).ToArray();
                    string spirv = Path.Combine(output, string.Join(".", on.Prepend(name)) + "." + stage + ".spv");
                    string entry = stage == "vert" ? vertex : fragment;
                    var arguments = new List<string>
                    {
                        "-D", "-V", "-S", stage, "-e", entry, "--source-entrypoint", entry, "--auto-map-bindings",
                            "--auto-map-locations",
                        "-DHOLOCAST_FULL_PRECISION=1", "-DUNITY_COLORSPACE_GAMMA=1", "-o", spirv, flat,
                    };
                    arguments.AddRange(on.Select(d => "-D" + d + "=1"));
                    if (stage == "frag")
                    {
                        // Shift the bindings to keep the stages' apart.
                        arguments.AddRange(new[] { "UBO", "texture",
                            "sampler" }.SelectMany(k => new[] { "--shift-" + k + "-binding", "16" }));
                    }
                    Build.Run("glslangValidator", arguments.ToArray());
                }
            }
        }

        // Expands includes like Unity.
        void Flatten(string line, StringBuilder into)
        {
            Match m = Regex.Match(line, @"^\s*#include ""([^""]+)""");
            if (!m.Success)
            {
                into.Append(line).Append('\n');
                return;
            }
            string path = m.Groups[1].Value;
            bool own = path.StartsWith("Packages/dev.holocast.client/");
            string file = Path.Combine(own ? folders.Client : Path.Combine(folders.Verify, "shaders/include"), path);
            if (!File.Exists(file))
            {
                throw new Failure("included file " + path + " does not exist");
            }
            if (own && !path.EndsWith("Pass.hlsl")
                && Regex.IsMatch(File.ReadAllText(file), @"^[^/]*\b(?:UNITY_|unity_)", RegexOptions.Multiline))
            {
                throw new Failure(path + " depends on Unity");
            }
            foreach (string inner in File.ReadAllLines(file))
            {
                Flatten(inner, into);
            }
        }

        static IEnumerable<string[]> Product(IEnumerable<string[]> axes)
        {
            IEnumerable<string[]> all = new[] { new string[0] };
            return axes.Aggregate(all, (sum, axis) => sum.SelectMany(s => axis.Select(a => s.Append(a).ToArray())));
        }

        ProcessStartInfo Wine(string program)
        {
            var start = new ProcessStartInfo("/usr/lib/wine/" + program);
            start.Environment["WINEPREFIX"] = Path.Combine(folders.Tools, "wine");
            start.Environment["WINEDEBUG"] = "-all";
            start.Environment.Remove("LD_LIBRARY_PATH");
            return start;
        }

        // Starts or ends the server. There may be one already.
        void Server(string option)
        {
            ProcessStartInfo start = Wine("wineserver64");
            start.ArgumentList.Add(option);
            using (Process p = Process.Start(start))
            {
                p.WaitForExit();
            }
        }

        string Fxc(List<string> arguments)
        {
            ProcessStartInfo start = Wine("wine64");
            start.RedirectStandardOutput = start.RedirectStandardError = true;
            start.WorkingDirectory = Path.Combine(folders.Tools, "fxc");
            start.Environment["WINEDLLOVERRIDES"] = "d3dcompiler_47=n;mscoree=;mshtml=";
            start.ArgumentList.Add("fxc.exe");
            foreach (string a in arguments)
            {
                start.ArgumentList.Add(a.StartsWith("/") ? "Z:" + a.Replace('/', '\\') : a);
            }
            using (Process p = Process.Start(start))
            {
                var errors = p.StandardError.ReadToEndAsync();
                string text = p.StandardOutput.ReadToEnd();
                p.WaitForExit();
                if (p.ExitCode != 0)
                {
                    throw new Failure("Microsoft's compiler:\n"
                        + string.Join("\n", errors.Result.Split('\n').Distinct()));
                }
                return text.Replace("\r", "");
            }
        }
    }
}
