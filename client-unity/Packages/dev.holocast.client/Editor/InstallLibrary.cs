using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using UnityEditor;
using UnityEngine;
using PackageInfo = UnityEditor.PackageManager.PackageInfo;
using PackageSource = UnityEditor.PackageManager.PackageSource;

namespace Holocast.Editor
{
    // The menu item Holocast › Install Library…, which copies a native library to where Unity finds it,
    // with the import settings of its platform.
    static class InstallLibrary
    {
        const string Package = "Packages/dev.holocast.client";

        // Install into the project, because packages from a git URL, a tgz or a registry are read-only.
        const string Folder = "Assets/Plugins/Holocast";

        [MenuItem("Holocast/Install Library…", priority = 1)]
        static void Choose()
        {
            string file = EditorUtility.OpenFilePanel("Native library of Holocast", "", "");
            if (file.Length > 0)
            {
                EditorUtility.DisplayDialog("Holocast", Install(file), "OK");
            }
        }

        // Returns the outcome as a sentence.
        static string Install(string file)
        {
            try
            {
                NativeLibrary library = NativeLibrary.Recognize(File.ReadAllBytes(file), out string problem);
                if (library == null)
                {
                    return "The file " + file + " " + problem + ".";
                }
                string packaged = Package + "/Plugins/" + library.Path;
                PackageSource source = PackageInfo.FindForAssetPath(Package + "/package.json")?.source
                    ?? PackageSource.Embedded;
                string asset = Destination(library, File.Exists(Path.GetFullPath(packaged)), source);
                if (asset == null)
                {
                    return "The package already contains the library for " + library.Platform
                        + ", and is read-only: install another version of the package instead.";
                }
                Directory.CreateDirectory(Path.GetDirectoryName(Path.GetFullPath(asset)));
                File.Copy(file, Path.GetFullPath(asset), true);
                AssetDatabase.ImportAsset(asset);
                SetPlatform((PluginImporter)AssetImporter.GetAtPath(asset), library);
                return "Installed the library for " + library.Platform + " as " + asset
                    + ". Restart Unity if it has already loaded the previous one.";
            }
            catch (Exception e) when (e is IOException || e is UnauthorizedAccessException)
            {
                return "The library could not be installed: " + e.Message;
            }
        }

        // Asset path to install to; null if a read-only package contains the library, because Unity
        // refuses to build with two libraries of the same name.
        public static string Destination(NativeLibrary library, bool packaged, PackageSource source)
        {
            if (!packaged)
            {
                return Folder + "/" + library.Path;
            }
            return source == PackageSource.Embedded || source == PackageSource.Local
                ? Package + "/Plugins/" + library.Path : null;
        }

        static void SetPlatform(PluginImporter importer, NativeLibrary library)
        {
            importer.SetCompatibleWithAnyPlatform(false);
            BuildTarget target = Target(library);
            bool store = target == BuildTarget.WSAPlayer, android = target == BuildTarget.Android;
            string cpu = store || android ? "ARM64" : target == BuildTarget.StandaloneOSX ? "AnyCPU" : "x86_64";
            importer.SetCompatibleWithPlatform(target, true);
            importer.SetPlatformData(target, "CPU", cpu);
            if (store)
            {
                importer.SetPlatformData(target, "SDK", "UWP");
            }
            importer.SetCompatibleWithEditor(!store && !android);
            if (!store && !android)
            {
                importer.SetEditorData("CPU", cpu);
                importer.SetEditorData("OS", target == BuildTarget.StandaloneWindows64 ? "Windows"
                    : target == BuildTarget.StandaloneLinux64 ? "Linux" : "OSX");
            }
            importer.SaveAndReimport();
        }

        public static BuildTarget Target(NativeLibrary library)
        {
            return library == NativeLibrary.HoloLens ? BuildTarget.WSAPlayer
                : library == NativeLibrary.Android ? BuildTarget.Android
                : library == NativeLibrary.MacOs ? BuildTarget.StandaloneOSX
                : library == NativeLibrary.Linux ? BuildTarget.StandaloneLinux64
                : BuildTarget.StandaloneWindows64;
        }

        // Libraries that Unity would add to a build for this platform, in Assets or in any package.
        public static List<string> Installed(NativeLibrary library)
        {
            string name = Path.GetFileName(library.Path);
            return PluginImporter.GetImporters(Target(library)).Select(i => i.assetPath)
                .Where(p => Path.GetFileName(p) == name).ToList();
        }
    }
}
