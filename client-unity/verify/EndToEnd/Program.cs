using System;

namespace Holocast.Verify
{
    static class Program
    {
        static int Main(string[] args)
        {
            switch (args.Length > 0 ? args[0] : "")
            {
                case "unit":
                    return UnitTests.Run(args.Length > 1 ? args[1] : "");
                default:
                    Console.Error.WriteLine("usage: unit [NAME]");
                    return 2;
            }
        }
    }
}
