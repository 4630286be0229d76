using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Text;
using System.Text.RegularExpressions;
using Holocast.Native;

namespace Holocast.Verify
{
    // Compares struct sizes, field offsets and constants of the package with holocast.h,
    // as the C compiler lays them out.
    static class LayoutTest
    {
        static readonly Type[] Structs =
            { typeof(HcConfig), typeof(HcState), typeof(HcTrack), typeof(HcSubscribe), typeof(HcView),
            typeof(HcFrame), typeof(HcPicture), typeof(HcClock), typeof(HcStats), typeof(HcPlayback), typeof(HcSound),
            typeof(HcSoundStats) };

        public static int Run(string header, string folder)
        {
            string text = Regex.Replace(File.ReadAllText(header), @"/\*.*?\*/|//[^\n]*", "", RegexOptions.Singleline);
            var code = new StringBuilder("#include \"" + header + "\"\n#include <stdio.h>\nint main(void) {\n");
            var wanted = new Dictionary<string, long>();
            foreach (Type t in Structs)
            {
                code.Append("printf(\"" + t.Name + " %zu\\n\", sizeof(" + t.Name + "));\n");
                wanted[t.Name] = Marshal.SizeOf(t);
                Match body = Regex.Match(text, @"typedef struct(?: \w+)? \{([^{}]*)\} " + t.Name + ";");
                string[] fields = Regex.Matches(body.Groups[1].Value, @"(\w+)(?:\[\d+\])?;")
                    .Select(m => m.Groups[1].Value).ToArray();
                FieldInfo[] own = t.GetFields(BindingFlags.Instance | BindingFlags.Public);
                if (!own.Select(f => f.Name).SequenceEqual(fields.Select(Camel)))
                {
                    Console.WriteLine("FAIL  fields of " + t.Name + ": " + string.Join(" ", own.Select(f => f.Name))
                        + "; the header has " + string.Join(" ", fields));
                    return 1;
                }
                foreach (string f in fields)
                {
                    code.Append("printf(\"" + t.Name + "." + f + " %zu\\n\", offsetof(" + t.Name + ", " + f + "));\n");
                    wanted[t.Name + "." + f] = (long)Marshal.OffsetOf(t, Camel(f));
                }
            }
            foreach (Match m in Regex.Matches(text, @"^#define (HC_\w+) -?\d+", RegexOptions.Multiline))
            {
                code.Append("printf(\"" + m.Groups[1].Value + " %lld\\n\", (long long)" + m.Groups[1].Value + ");\n");
            }
            code.Append("return 0; }\n");
            Directory.CreateDirectory(folder);
            string source = Path.Combine(folder, "layout.c"), program = Path.Combine(folder, "layout");
            File.WriteAllText(source, code.ToString());
            Execute("cc", "-Wall -Werror -o " + program + " " + source);
            var real = Execute(program, "").Split('\n', StringSplitOptions.RemoveEmptyEntries).Select(l => l.Split(' '))
                .ToDictionary(w => w[0], w => long.Parse(w[1]));
            foreach (var (name, constant) in Constants())
            {
                wanted[name] = constant;
            }
            int failed = 0;
            foreach (KeyValuePair<string, long> w in wanted)
            {
                if (!real.TryGetValue(w.Key, out long r) || r != w.Value)
                {
                    Console.WriteLine("FAIL  " + w.Key + " is " + w.Value + " in C#, "
                        + (real.ContainsKey(w.Key) ? r.ToString() : "nothing") + " in C");
                    failed++;
                }
            }
            Console.WriteLine(wanted.Count + " sizes, offsets and constants match the C compiler's");
            return failed;
        }

        static IEnumerable<(string, long)> Constants()
        {
            foreach (FieldInfo f in typeof(Abi).GetFields(BindingFlags.Static | BindingFlags.Public))
            {
                string name = Regex.Replace(f.Name, "([a-z])([A-Z])", "$1_$2").ToUpperInvariant()
                    .Replace("ERROR_", "E_");
                yield return (f.Name == "Version" ? "HC_ABI_VERSION" : "HC_" + name,
                    Convert.ToInt64(f.GetRawConstantValue()));
            }
            foreach (HcPhase p in Enum.GetValues(typeof(HcPhase)))
            {
                yield return ("HC_PHASE_" + p.ToString().ToUpperInvariant(), (long)p);
            }
            foreach (HcPlaybackAction a in Enum.GetValues(typeof(HcPlaybackAction)))
            {
                yield return ("HC_PLAYBACK_" + a.ToString().ToUpperInvariant(), (long)a);
            }
        }

        static string Camel(string name)
        {
            return Regex.Replace(name, "_([a-z0-9])", m => m.Groups[1].Value.ToUpperInvariant());
        }

        static string Execute(string program, string arguments)
        {
            using (Process p =
                Process.Start(new ProcessStartInfo(program, arguments) { RedirectStandardOutput = true }))
            {
                string text = p.StandardOutput.ReadToEnd();
                p.WaitForExit();
                Check.That(p.ExitCode == 0, program + " failed");
                return text;
            }
        }
    }
}
