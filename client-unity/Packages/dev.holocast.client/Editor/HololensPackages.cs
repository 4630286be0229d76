using System;
using System.IO;
using System.Linq;
using Newtonsoft.Json;
using Newtonsoft.Json.Linq;
using UnityEditor;
using UnityEditor.PackageManager;

namespace Holocast.Editor
{
    // The menu item Holocast › HoloLens 2 › Add Packages, which adds Microsoft's registry and OpenXR
    // plugin to the project's manifest.
    static class HololensPackages
    {
        const string Manifest = "Packages/manifest.json";
        const string Url =
            "https://pkgs.dev.azure.com/aipmr/MixedReality-Unity-Packages/_packaging/Unity-packages/npm/registry/";
        const string Scope = "com.microsoft.mixedreality";
        const string Plugin = "com.microsoft.mixedreality.openxr";
        const string PluginVersion = "1.11.2";

        [MenuItem("Holocast/HoloLens 2/Add HoloLens Packages", priority = 19)]
        static void AddToProject()
        {
            try
            {
                string before = File.ReadAllText(Manifest), after = Add(before);
                if (after != before)
                {
                    File.WriteAllText(Manifest, after);
                    Client.Resolve();
                }
                EditorUtility.DisplayDialog("Holocast", after == before
                    ? "The project already has Microsoft's OpenXR plugin."
                    : "Added Microsoft's registry and OpenXR plugin to " + Manifest + ".", "OK");
            }
            catch (Exception e) when (e is IOException || e is UnauthorizedAccessException || e is JsonException)
            {
                EditorUtility.DisplayDialog("Holocast", Manifest + " could not be changed: " + e.Message, "OK");
            }
        }

        // Adds the registry and the plugin to a manifest; returns it unchanged if it has both.
        // Throws JsonException if the text is not a manifest.
        public static string Add(string manifest)
        {
            JObject root = JObject.Parse(manifest);
            JArray registries = List(root, "scopedRegistries");
            bool changed = false;
            // The package manager rejects a scope that two registries list.
            if (!registries.OfType<JObject>().Any(r => List(r, "scopes").Any(s => (string)s == Scope)))
            {
                JObject microsoft = registries.OfType<JObject>()
                    .FirstOrDefault(r => ((string)r["url"])?.TrimEnd('/') == Url.TrimEnd('/'));
                if (microsoft == null)
                {
                    microsoft = new JObject { ["name"] = "Microsoft Mixed Reality", ["url"] = Url };
                    registries.Add(microsoft);
                }
                List(microsoft, "scopes").Add(Scope);
                changed = true;
            }
            if (!(root["dependencies"] is JObject dependencies))
            {
                root["dependencies"] = dependencies = new JObject();
            }
            // Keep any version that the project has chosen.
            if (dependencies[Plugin] == null)
            {
                dependencies[Plugin] = PluginVersion;
                changed = true;
            }
            return changed ? root.ToString(Formatting.Indented) + "\n" : manifest;
        }

        static JArray List(JObject parent, string name)
        {
            if (!(parent[name] is JArray list))
            {
                parent[name] = list = new JArray();
            }
            return list;
        }
    }
}
