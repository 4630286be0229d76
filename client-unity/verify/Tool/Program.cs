using System;
using System.IO;

namespace Holocast.Verify
{
    // A problem found in the package.
    sealed class Failure : Exception
    {
        public Failure(string message) : base(message)
        {
        }
    }

    sealed class Folders
    {
        public Folders(string root)
        {
            Root = Path.GetFullPath(root);
        }

        public const string Name = "dev.holocast.client";

        public string Root { get; }
        public string Client => Path.Combine(Root, "client-unity");
        public string Verify => Path.Combine(Client, "verify");
        public string Package => Path.Combine(Client, "Packages/" + Name);
        public string Tools => Path.Combine(Root, "build/unity");
        public string Output => Path.Combine(Root, "build/unity/out");
    }

    static class Program
    {
        static int Main(string[] args)
        {
            try
            {
                var folders = new Folders(args[0]);
                for (int i = 1; i < args.Length; i++)
                {
                    switch (args[i])
                    {
                        case "build": new Build(folders).Run(); break;
                        case "shaders": new Shaders(folders).Run(); break;
                        case "api": new Api(folders).Check(); break;
                        case "package": new Package(folders).Check(); break;
                        case "metas": new Package(folders).Complete(); break;
                        case "released": new Package(folders, args[++i]).CheckReleased(); break;
                        default: throw new Failure("unknown step " + args[i]);
                    }
                }
                return 0;
            }
            catch (Failure e)
            {
                Console.Error.WriteLine(e.Message);
                return 1;
            }
        }
    }
}
