using System;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.Loader;
using Holocast.Native;
using UnityEngine.Stub;

namespace Holocast.Verify
{
    // Messages for a missing, outdated or invalid native library. Each case needs its own process,
    // since the runtime loads a library only once.
    static class Plugins
    {
        public static int Run(string folder)
        {
            Directory.CreateDirectory(folder);
            string other = Compile(folder, "other", "unsigned hc_abi_version(void) { return 99; }");
            string none = Compile(folder, "none", "int nothing(void) { return 0; }");
            string text = Path.Combine(folder, "text.so");
            File.WriteAllText(text, "this is no library");
            int failed = 0;
            foreach (var (library, sentence) in new[]
            {
                (Path.Combine(folder, "missing.so"),
                    "The native library Plugins/x86_64/libholocast.so for Linux (x86_64) is missing or failed to "
                    + "load: install a release of the package, or choose Holocast › Install Library…, then restart."),
                (other,
                    "The native library Plugins/x86_64/libholocast.so has interface version 99, but this package needs "
                    + Abi.Version + ": install the library from the same release as the package."),
                (none,
                    "The native library Plugins/x86_64/libholocast.so is outdated or not Holocast's: install the one "
                    + "from the package's release, then restart."),
                (text,
                    "The native library Plugins/x86_64/libholocast.so was built for another platform than Linux "
                    + "(x86_64): install the right one from the package's release, then restart."),
            })
            {
                string message = Ask(library);
                // Some runtimes report an invalid file as one that fails to load.
                bool well = message == sentence || library == text && message.Contains("is missing or failed to load");
                Console.WriteLine((well ? "ok    " : "FAIL  ") + Path.GetFileName(library) + ": " + message);
                failed += well ? 0 : 1;
            }
            return failed + Named();
        }

        // Checks the file and platform names compiled into each platform's build of the package.
        static int Named()
        {
            int failed = 0;
            string outputs = Path.GetDirectoryName(Path.GetDirectoryName(typeof(Plugins).Assembly.Location));
            foreach (var (platform, file, name) in new[]
            {
                ("uwp", "Plugins/WSA/ARM64/holocast.dll", "HoloLens 2 (UWP, ARM64)"),
                ("android", "Plugins/Android/arm64-v8a/libholocast.so", "Android (ARM64)"),
                ("editor", "Plugins/x86_64/holocast.dll", "Windows (x86_64)"),
                ("linux", "Plugins/x86_64/libholocast.so", "Linux (x86_64)"),
            })
            {
                Assembly package = new AssemblyLoadContext(platform)
                    .LoadFromAssemblyPath(Path.Combine(outputs, platform, "Holocast.Client.dll"));
                Type plugin = package.GetType("Holocast.Native.Plugin", true);
                string said = plugin.GetProperty("File").GetValue(null) + " for "
                    + plugin.GetProperty("Platform").GetValue(null);
                bool well = said == file + " for " + name;
                Console.WriteLine((well ? "ok    " : "FAIL  ") + platform + ": " + said);
                failed += well ? 0 : 1;
            }
            return failed;
        }

        // Prints the HUD's message with this library.
        public static int PrintMessage(string library)
        {
            Lab.UseLibrary(library);
            var stage = new Stage("moqt://127.0.0.1:1/demo");
            stage.Run(0.5);
            Check.That(stage.Session.State == HolocastState.Failed, stage.Session.State.ToString());
            Console.WriteLine(stage.Hud.Text.Trim());
            Loop.Clear();
            return 0;
        }

        static string Ask(string library)
        {
            string self = typeof(Plugins).Assembly.Location;
            var start =
                new ProcessStartInfo(Process.GetCurrentProcess().MainModule.FileName) { RedirectStandardOutput = true };
            start.ArgumentList.Add(self);
            start.ArgumentList.Add("message");
            start.ArgumentList.Add(library);
            using (Process p = Process.Start(start))
            {
                string text = p.StandardOutput.ReadToEnd();
                p.WaitForExit();
                return text.Trim();
            }
        }

        static string Compile(string folder, string name, string code)
        {
            string source = Path.Combine(folder, name + ".c"), library = Path.Combine(folder, name + ".so");
            File.WriteAllText(source, code + "\n");
            using (Process p = Process.Start("cc", "-shared -fPIC -o " + library + " " + source))
            {
                p.WaitForExit();
                Check.That(p.ExitCode == 0, "cc failed");
            }
            return library;
        }
    }
}
