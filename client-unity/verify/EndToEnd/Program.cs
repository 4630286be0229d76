using System;
using System.Diagnostics;
using System.IO;
using System.Linq;

namespace Holocast.Verify
{
    static class Program
    {
        static int Main(string[] args)
        {
            string command = args.Length > 0 ? args[0] : "";
            if (command == "message")
            {
                return Plugins.PrintMessage(args[1]);
            }
            if (args.Length < 2)
            {
                Console.Error.WriteLine("usage: unit | layout | plugins | end-to-end  ROOT [NAME]");
                return 2;
            }
            string root = Path.GetFullPath(args[1]), name = args.Length > 2 ? args[2] : "";
            string scratch = Path.Combine(root, "build/unity/out/scratch");
            Lab.Root = root;
            Lab.Scratch = scratch;
            Directory.CreateDirectory(scratch);
            Lab.Binaries = Path.Combine(root, "bin");
            if (command == "plugins")
            {
                return Plugins.Run(scratch);
            }
            Lab.UseLibrary(Path.Combine(root, "client-unity/native/target/verify/libholocast.so"));
            switch (command)
            {
                case "unit": return UnitTests.Run(name);
                case "layout": return LayoutTest.Run(Path.Combine(root, "client-unity/native/include/holocast.h"),
                    scratch);
                case "end-to-end": return EndToEnd(args.Skip(2).ToArray());
                case "pictures": return Pictures.Run(scratch);
                case "times": return Pictures.Times(scratch);
                case "looks": return Pictures.Looks(scratch, name, args[3]);
                case "show": return Pictures.Show(scratch, name, args[3]);
                default: Console.Error.WriteLine("unknown command " + command); return 2;
            }
        }

        // names: parts of the names of tests to run or, after a minus sign, to skip.
        static int EndToEnd(string[] names)
        {
            int failed = 0, passed = 0;
            foreach (var (test, run) in Tests.All)
            {
                if (names.Any(n => n.StartsWith("-") ? test.Contains(n.Substring(1)) : !test.Contains(n)))
                {
                    continue;
                }
                var clock = Stopwatch.StartNew();
                using (var lab = new Lab())
                {
                    try
                    {
                        run(lab);
                        passed++;
                        Console.WriteLine("ok    " + test + " (" + clock.Elapsed.TotalSeconds.ToString("F1") + " s)");
                    }
                    catch (Exception e)
                    {
                        failed++;
                        Console.WriteLine("FAIL  " + test + ": " + (e is Failed ? e.Message : e.ToString()) + "\n"
                            + lab.Output());
                    }
                }
            }
            return failed == 0 && passed > 0 ? 0 : 1;
        }
    }
}
