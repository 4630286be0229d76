using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Security.Cryptography;
using System.Text;
using System.Text.Json;
using System.Text.RegularExpressions;
using Holocast.Editor;

namespace Holocast.Verify
{
    // Checks the package as Unity's package manager and asset database see it.
    sealed class Package
    {
        static readonly Regex Guid = new Regex(@"\bguid: ([0-9a-f]{32})\b");
        static readonly Regex Reference = new Regex(@"\{fileID: (-?\d+)(?:, guid: ([0-9a-f]{32}), type: (\d))?\}");

        // Unity's built-in assets, which have no file: default resources and extra resources.
        static readonly HashSet<string> Builtin =
            new HashSet<string> { "0000000000000000e000000000000000", "0000000000000000f000000000000000" };

        readonly Folders folders;
        readonly string package;
        readonly List<string> problems = new List<string>();
        readonly Dictionary<string, string> guids = new Dictionary<string, string>(); // GUID to path

        public Package(Folders folders) : this(folders, folders.Package)
        {
        }

        // Receives the package's folder.
        public Package(Folders folders, string package)
        {
            this.folders = folders;
            this.package = Path.GetFullPath(package);
        }

        public void Check()
        {
            int assets = Metas(package) + Metas(Path.Combine(folders.Client, "Assets"));
            Manifest();
            Assemblies();
            int scenes = Scenes(package) + Scenes(Path.Combine(folders.Client, "Assets"));
            Headset();
            Settings();
            Report();
            Console.WriteLine(assets + " assets have their own .meta, " + guids.Count + " GUIDs are unique, " + scenes
                + " scenes and prefabs resolve");
        }

        // Checks a package as users get it: complete on its own, with the library of each platform.
        public void CheckReleased()
        {
            Metas(package);
            Manifest();
            Assemblies();
            Scenes(package);
            Libraries();
            Report();
            Console.WriteLine("the package is complete, with " + NativeLibrary.All.Length + " libraries");
        }

        void Report()
        {
            if (problems.Count > 0)
            {
                throw new Failure(string.Join("\n", problems));
            }
        }

        void Libraries()
        {
            foreach (NativeLibrary library in NativeLibrary.All)
            {
                string path = Path.Combine(package, "Plugins", library.Path);
                if (!File.Exists(path))
                {
                    problems.Add("Plugins/" + library.Path + " is missing");
                    continue;
                }
                NativeLibrary found = NativeLibrary.Recognize(File.ReadAllBytes(path), out string problem);
                if (found != library)
                {
                    problems.Add("Plugins/" + library.Path + " " + (problem ?? "is for " + found.Platform));
                }
                Import(library, path + ".meta");
            }
        }

        // Enabled platforms of a library's import settings, each with its processor.
        static readonly Dictionary<NativeLibrary, string[]> Enabled = new Dictionary<NativeLibrary, string[]>
        {
            [NativeLibrary.Windows] = new[] { "Editor: Editor x86_64 Windows", "Standalone: Win64 x86_64" },
            [NativeLibrary.Linux] = new[] { "Editor: Editor x86_64 Linux", "Standalone: Linux64 x86_64" },
            [NativeLibrary.MacOs] = new[] { "Editor: Editor AnyCPU OSX", "Standalone: OSXUniversal AnyCPU" },
            [NativeLibrary.HoloLens] = new[] { "Windows Store Apps: WindowsStoreApps ARM64 UWP" },
            [NativeLibrary.Android] = new[] { "Android: Android ARM64" },
        };

        void Import(NativeLibrary library, string meta)
        {
            if (!File.Exists(meta))
            {
                return; // Metas reports it
            }
            var enabled = new List<string>();
            // A platform's name is indented by six columns, its settings by eight.
            var names = new Regex(@"^      (\w[\w ]*: \w+)|^        (?:CPU|OS|SDK): (\w+)", RegexOptions.Multiline);
            foreach (string block in File.ReadAllText(meta).Split("  - first:\n").Skip(1)
                .Where(b => b.Contains("enabled: 1")))
            {
                enabled.Add(string.Join(" ", names.Matches(block).Where(m => !m.Value.Contains("enabled"))
                    .Select(m => m.Groups[1].Value + m.Groups[2].Value)));
            }
            if (!enabled.SequenceEqual(Enabled[library]))
            {
                problems.Add("Plugins/" + library.Path + ".meta enables " + string.Join(", ", enabled));
            }
        }

        // Creates missing .meta files, with a GUID derived from the path.
        public void Complete()
        {
            foreach (string root in new[] { folders.Package, Path.Combine(folders.Client, "Assets") })
            {
                foreach (string asset in Assets(root).Where(a => !File.Exists(a + ".meta")))
                {
                    File.WriteAllText(asset + ".meta", Meta(asset));
                    Console.WriteLine("wrote " + asset + ".meta");
                }
            }
        }

        string Meta(string asset)
        {
            string guid;
            using (MD5 md5 = MD5.Create())
            {
                guid =
                    string.Concat(md5.ComputeHash(Encoding.UTF8.GetBytes("holocast:"
                    + Path.GetRelativePath(folders.Client, asset))).Select(b => b.ToString("x2")));
            }
            string importer = Directory.Exists(asset) ? "folderAsset: yes\nDefaultImporter:" : "DefaultImporter:";
            string more = "";
            switch (Path.GetExtension(asset))
            {
                case ".cs":
                    importer = "MonoImporter:";
                    more =
                        "  serializedVersion: 2\n  defaultReferences: []\n  executionOrder: 0\n  icon: {instanceID: "
                        + "0}\n";
                    break;
                case ".asmdef": importer = "AssemblyDefinitionImporter:"; break;
                case ".shader": importer = "ShaderImporter:"; more =
                    "  defaultTextures: []\n  nonModifiableTextures: []\n"; break;
                case ".compute": importer = "ComputeShaderImporter:"; break;
                case ".hlsl": importer = "ShaderIncludeImporter:"; break;
                case ".bytes": case ".md": case ".xml": importer = "TextScriptImporter:"; break;
                case ".json": importer = Path.GetFileName(asset) == "package.json"
                    ? "PackageManifestImporter:" : "TextScriptImporter:"; break;
            }
            // MonoImporter and others keep Unity's key order: externalObjects first.
            return "fileFormatVersion: 2\nguid: " + guid + "\n" + importer + "\n  externalObjects: {}\n" + more
                + "  userData: \n  assetBundleName: \n  assetBundleVariant: \n";
        }

        // Files and folders that Unity imports. Skips hidden names and names that end in ~, except for
        // samples, which become assets when imported.
        static IEnumerable<string> Assets(string root)
        {
            if (!Directory.Exists(root))
            {
                yield break;
            }
            foreach (string path in Directory.EnumerateFileSystemEntries(root).OrderBy(p => p, StringComparer.Ordinal))
            {
                string name = Path.GetFileName(path);
                if (name.StartsWith(".") || name.EndsWith(".meta"))
                {
                    continue;
                }
                if (name.EndsWith("~"))
                {
                    if (name == "Samples~")
                    {
                        foreach (string sample in Directory.GetDirectories(path))
                        {
                            foreach (string a in Assets(sample))
                            {
                                yield return a;
                            }
                        }
                    }
                    continue;
                }
                yield return path;
                if (Directory.Exists(path))
                {
                    foreach (string a in Assets(path))
                    {
                        yield return a;
                    }
                }
            }
        }

        int Metas(string root)
        {
            var assets = new HashSet<string>(Assets(root));
            foreach (string asset in assets)
            {
                string meta = asset + ".meta";
                if (!File.Exists(meta))
                {
                    problems.Add(Name(asset) + " has no .meta (verify.sh metas writes one)");
                    continue;
                }
                string text = File.ReadAllText(meta);
                Match m = Guid.Match(text);
                if (!m.Success)
                {
                    problems.Add(Name(meta) + " has no guid");
                }
                else if (guids.TryGetValue(m.Groups[1].Value, out string other))
                {
                    problems.Add(Name(asset) + " has the guid of " + Name(other));
                }
                else
                {
                    guids.Add(m.Groups[1].Value, asset);
                }
                if (text.Contains("folderAsset: yes") != Directory.Exists(asset))
                {
                    problems.Add(Name(meta) + " belongs to a " + (Directory.Exists(asset) ? "file" : "folder"));
                }
            }
            if (Directory.Exists(root))
            {
                foreach (string meta in Directory.GetFiles(root, "*.meta", SearchOption.AllDirectories))
                {
                    if (!assets.Contains(meta.Substring(0, meta.Length - 5)))
                    {
                        problems.Add(Name(meta) + " has no asset");
                    }
                }
            }
            return assets.Count;
        }

        void Manifest()
        {
            string path = Path.Combine(package, "package.json");
            JsonElement p = Json.Read(path);
            foreach (string key in new[] { "name", "version", "displayName", "description", "unity", "license" })
            {
                if (p.Text(key).Length == 0)
                {
                    problems.Add("package.json has no " + key);
                }
            }
            if (p.Text("name") != Folders.Name)
            {
                problems.Add("package.json: name is " + p.Text("name"));
            }
            if (!Regex.IsMatch(p.Text("version"), @"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$"))
            {
                problems.Add("package.json: " + p.Text("version") + " is not a semantic version");
            }
            if (p.Text("unity") != "2022.3")
            {
                problems.Add("package.json: unity is " + p.Text("unity"));
            }
            var listed = new List<string>();
            foreach (JsonElement s in p.GetProperty("samples").EnumerateArray())
            {
                listed.Add(s.Text("path"));
                if (s.Text("displayName").Length == 0 || s.Text("description").Length == 0)
                {
                    problems.Add("package.json: sample " + s.Text("path") + " has no name or description");
                }
            }
            var there = Directory.GetDirectories(Path.Combine(package, "Samples~"))
                .Select(d => "Samples~/" + Path.GetFileName(d));
            foreach (string s in listed.Except(there))
            {
                problems.Add("package.json: sample " + s + " is missing");
            }
            foreach (string s in there.Except(listed))
            {
                problems.Add("package.json does not list " + s);
            }
            foreach (string file in new[] { "README.md", "CHANGELOG.md", "LICENSE.md", "Documentation~/index.md" })
            {
                if (!File.Exists(Path.Combine(package, file)))
                {
                    problems.Add("the package has no " + file);
                }
            }
        }

        // Assemblies of other packages, and the version symbols an asmdef may define for them.
        static readonly HashSet<string> Foreign = new HashSet<string>
        {
            "Microsoft.MixedReality.OpenXR", "MixedReality.Toolkit.Core", "MixedReality.Toolkit.SpatialManipulation",
                "Unity.XR.ARFoundation",
            "Unity.XR.ARSubsystems", "Unity.XR.CoreUtils", "Unity.XR.Interaction.Toolkit", "UnityEngine.TestRunner",
                "UnityEditor.TestRunner", "Unity.InputSystem",
        };

        void Assemblies()
        {
            List<Asmdef> all = Asmdef.Find(package);
            foreach (Asmdef a in all)
            {
                if (Path.GetFileNameWithoutExtension(a.Path) != a.Name)
                {
                    problems.Add(Name(a.Path) + " is named " + a.Name);
                }
                if (a.Sources.Length == 0)
                {
                    problems.Add(Name(a.Path) + " has no sources");
                }
                foreach (string r in a.References)
                {
                    Asmdef to = all.FirstOrDefault(o => o.Name == r);
                    if (to == null && !Foreign.Contains(r))
                    {
                        problems.Add(Name(a.Path) + " refers to " + r + ", which does not exist");
                    }
                    if (to != null && to.IsEditor && !a.IsEditor)
                    {
                        problems.Add(Name(a.Path) + " refers to " + r + ", which is editor-only");
                    }
                }
            }
            foreach (string source in Directory.GetFiles(package, "*.cs", SearchOption.AllDirectories))
            {
                if (!all.Any(a => a.Sources.Contains(source)))
                {
                    problems.Add(Name(source) + " is in no assembly");
                }
                // Unity finds a component by its file name.
                Match m = Regex.Match(File.ReadAllText(source),
                    @"public (?:sealed |abstract )?class (\w+) : (?:MonoBehaviour|HolocastAnchor)\b");
                if (m.Success && m.Groups[1].Value != Path.GetFileNameWithoutExtension(source))
                {
                    problems.Add(Name(source) + " has the component " + m.Groups[1].Value);
                }
            }
        }

        int Scenes(string root)
        {
            if (!Directory.Exists(root))
            {
                return 0;
            }
            int count = 0;
            foreach (string path in Directory.GetFiles(root, "*.*", SearchOption.AllDirectories)
                .Where(p => p.EndsWith(".unity") || p.EndsWith(".prefab") || p.EndsWith(".asset")
                || p.EndsWith(".mat")))
            {
                count++;
                Scene(path);
            }
            return count;
        }

        // Checks that a scene's references lead to its own objects or to assets, and its scripts to
        // components with the serialized fields.
        void Scene(string path)
        {
            string text = File.ReadAllText(path);
            var ids = new HashSet<string>();
            foreach (Match m in Regex.Matches(text, @"^--- !u!\d+ &(\d+)", RegexOptions.Multiline))
            {
                if (!ids.Add(m.Groups[1].Value))
                {
                    problems.Add(Name(path) + ": duplicate object ID " + m.Groups[1].Value);
                }
            }
            foreach (Match m in Reference.Matches(text))
            {
                string guid = m.Groups[2].Value;
                if (guid.Length == 0)
                {
                    if (m.Groups[1].Value != "0" && !ids.Contains(m.Groups[1].Value))
                    {
                        problems.Add(Name(path) + " refers to object " + m.Groups[1].Value + ", which it lacks");
                    }
                }
                else if (!Builtin.Contains(guid) && !guids.ContainsKey(guid))
                {
                    problems.Add(Name(path) + " refers to asset " + guid + ", which does not exist");
                }
            }
            foreach (string block in Regex.Split(text, @"^--- ", RegexOptions.Multiline)
                .Where(b => b.StartsWith("!u!114 ")))
            {
                Match script = Regex.Match(block, @"m_Script: \{fileID: 11500000, guid: ([0-9a-f]{32}), type: 3\}");
                if (!script.Success || !guids.TryGetValue(script.Groups[1].Value, out string source)
                    || !source.EndsWith(".cs"))
                {
                    problems.Add(Name(path) + ": a component has no script of the package");
                    continue;
                }
                string code = File.ReadAllText(source);
                Match parent = Regex.Match(code, @"class \w+ : (Holocast\w+)");
                if (parent.Success)
                {
                    code += File.ReadAllText(guids.Values.First(v => v.EndsWith("/" + parent.Groups[1].Value + ".cs")));
                }
                foreach (Match field in Regex.Matches(block, @"^  (\w+):", RegexOptions.Multiline))
                {
                    string name = field.Groups[1].Value;
                    if (!name.StartsWith("m_")
                        && !Regex.IsMatch(code, @"\[SerializeField[^\]]*\](?:\s*\[[^\]]*\])*\s*[\w<>\[\]]+ " + name
                        + @"\b"))
                    {
                        problems.Add(Name(path) + ": " + Path.GetFileName(source) + " has no field " + name);
                    }
                }
            }
        }

        // Checks that the HoloLens sample has the README's features and starts without an address, as its
        // app cannot reach localhost.
        void Headset()
        {
            string path = Path.Combine(folders.Package, "Samples~/HoloLens/HoloLens.unity");
            string text = File.ReadAllText(path);
            foreach (string component in new[] { "HolocastPoints", "HolocastSphere", "HolocastWorldAnchor",
                "HolocastManipulation", "HolocastPairing", "HolocastMenu" })
            {
                if (!text.Contains(guids.First(g => g.Value.EndsWith("/" + component + ".cs")).Key))
                {
                    problems.Add(Name(path) + " has no " + component);
                }
            }
            if (!Regex.IsMatch(text, @"^  url: *$", RegexOptions.Multiline))
            {
                problems.Add(Name(path) + ": the session has an address");
            }
        }

        // Checks the Unity project around the package.
        void Settings()
        {
            JsonElement manifest = Json.Read(Path.Combine(folders.Client, "Packages/manifest.json"));
            foreach (JsonProperty d in manifest.GetProperty("dependencies").EnumerateObject())
            {
                if (!d.Name.StartsWith("com.unity."))
                {
                    problems.Add("manifest.json: " + d.Name + " is not in Unity's registry");
                }
            }
            if (!File.ReadAllText(Path.Combine(folders.Client, "ProjectSettings/ProjectVersion.txt"))
                .StartsWith("m_EditorVersion: 2022.3."))
            {
                problems.Add("ProjectVersion.txt: not Unity 2022.3");
            }
            string settings = File.ReadAllText(Path.Combine(folders.Client, "ProjectSettings/ProjectSettings.asset"));
            foreach (string capability in new[] { "InternetClient", "InternetClientServer",
                "PrivateNetworkClientServer", "SpatialPerception", "GazeInput", "WebCam" })
            {
                if (!settings.Contains(capability + ": True"))
                {
                    problems.Add("ProjectSettings.asset: capability " + capability + " is not set");
                }
            }
            string link = File.ReadAllText(Path.Combine(folders.Client, "Assets/link.xml"));
            foreach (Asmdef a in Asmdef.Find(package)
                .Where(a => a.Include.Length == 0 && !a.IsTest && !a.Path.Contains("Samples~")))
            {
                if (!link.Contains("\"" + a.Name + "\""))
                {
                    problems.Add("link.xml does not keep " + a.Name);
                }
            }
        }

        string Name(string path)
        {
            return Path.GetRelativePath(package.StartsWith(folders.Client) ? folders.Client : package, path);
        }
    }
}
