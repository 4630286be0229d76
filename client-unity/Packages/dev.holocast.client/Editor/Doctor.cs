using System.Collections.Generic;
using System.IO;
using Holocast.Native;
using UnityEditor;
using UnityEditor.Build;
using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast.Editor
{
    public enum Verdict
    {
        Good,
        Unsure,
        Bad,
    }

    // One thing that was looked at: what it is, whether it is well, and what to do.
    readonly struct Finding
    {
        public readonly Verdict Verdict;
        public readonly string Subject;
        public readonly string Sentence;

        public Finding(Verdict verdict, string subject, string sentence)
        {
            Verdict = verdict;
            Subject = subject;
            Sentence = sentence;
        }
    }

    // What keeps a hologram from being seen, looked for in the order in which it is needed.
    static class Doctor
    {
        const string Package = "Packages/dev.holocast.client";

        static readonly string[] Libraries =
        {
            "Plugins/x86_64/holocast.dll",
            "Plugins/x86_64/libholocast.so",
            "Plugins/WSA/ARM64/holocast.dll",
            "Plugins/Android/arm64-v8a/libholocast.so",
        };

        public static List<Finding> Examine()
        {
            var findings = new List<Finding>();
            findings.Add(OfLibrary(Plugin.Problem()));
            bool hololens = EditorUserBuildSettings.activeBuildTarget == BuildTarget.WSAPlayer;
            if (hololens)
            {
                findings.Add(OfDeviceLibrary(File.Exists(Path.Combine(Path.GetFullPath(Package), Libraries[2]))));
            }
            findings.Add(OfGraphics(SystemInfo.graphicsDeviceType, SystemInfo.supportsComputeShaders));
            findings.Add(OfPipeline(GraphicsSettings.currentRenderPipeline));
            if (hololens)
            {
                findings.Add(OfCapabilities());
                findings.Add(OfBackend(PlayerSettings.GetScriptingBackend(NamedBuildTarget.WindowsStoreApps)));
            }
            findings.AddRange(OfScene(
                Object.FindObjectsByType<HolocastSession>(FindObjectsSortMode.None), Object.FindObjectsByType<HolocastPoints>(FindObjectsSortMode.None), Camera.main));
            return findings;
        }

        public static Finding OfLibrary(string problem)
        {
            return problem == null
                ? new Finding(Verdict.Good, "Native library", Plugin.File + " is there and has the right interface.")
                : new Finding(Verdict.Bad, "Native library", problem);
        }

        public static Finding OfDeviceLibrary(bool exists)
        {
            return exists
                ? new Finding(Verdict.Good, "HoloLens library", Libraries[2] + " is there.")
                : new Finding(Verdict.Bad, "HoloLens library", Libraries[2] + " is missing from the package: the app would build and say so on the device.");
        }

        public static Finding OfGraphics(GraphicsDeviceType device, bool compute)
        {
            if (!compute)
            {
                return new Finding(Verdict.Bad, "Graphics", device + " on this machine has no structured buffers, in which points are drawn.");
            }
            return device == GraphicsDeviceType.Direct3D11
                ? new Finding(Verdict.Good, "Graphics", "Direct3D 11.")
                : new Finding(Verdict.Unsure, "Graphics", device + ": the shaders are checked for Direct3D 11 and Vulkan.");
        }

        public static Finding OfPipeline(RenderPipelineAsset pipeline)
        {
            return pipeline == null
                ? new Finding(Verdict.Good, "Render pipeline", "Built-in.")
                : new Finding(Verdict.Unsure, "Render pipeline", "The shaders are made for the built-in pipeline; with " + pipeline.name + " nobody has tried them.");
        }

        static Finding OfCapabilities()
        {
            var missing = new List<string>();
            foreach (PlayerSettings.WSACapability c in HololensBuild.Capabilities)
            {
                if (!PlayerSettings.WSA.GetCapability(c))
                {
                    missing.Add(c.ToString());
                }
            }
            return missing.Count == 0
                ? new Finding(Verdict.Good, "Capabilities", "All are set.")
                : new Finding(Verdict.Bad, "Capabilities", string.Join(", ", missing) + " not set: choose Holocast › HoloLens 2 › Set Up Project.");
        }

        public static Finding OfBackend(ScriptingImplementation backend)
        {
            return backend == ScriptingImplementation.IL2CPP
                ? new Finding(Verdict.Good, "Scripting backend", "IL2CPP.")
                : new Finding(Verdict.Bad, "Scripting backend", backend + " does not run on UWP: choose Holocast › HoloLens 2 › Set Up Project.");
        }

        public static List<Finding> OfScene(HolocastSession[] sessions, HolocastPoints[] points, Camera camera)
        {
            var findings = new List<Finding>();
            if (sessions.Length == 0)
            {
                findings.Add(new Finding(Verdict.Bad, "Scene", "There is no HolocastSession: choose GameObject › Holocast › Hologram."));
            }
            foreach (HolocastSession session in sessions)
            {
                if (!HolocastAddress.TryParse(session.Url, out _))
                {
                    findings.Add(new Finding(Verdict.Bad, session.name, "“" + session.Url + "” is not an address of a session."));
                }
                else if (session.Message.Length > 0)
                {
                    findings.Add(new Finding(session.State == HolocastState.Failed ? Verdict.Bad : Verdict.Unsure, session.name, session.Message));
                }
                else
                {
                    findings.Add(new Finding(Verdict.Good, session.name, session.Url + (Application.isPlaying ? ", " + session.State : "")));
                }
                if (session.GetComponentInChildren<HolocastPoints>() == null && points.Length == 0)
                {
                    findings.Add(new Finding(Verdict.Bad, session.name, "Nothing shows its frames: add a HolocastPoints to it."));
                }
            }
            if (camera == null)
            {
                findings.Add(new Finding(Verdict.Bad, "Scene", "There is no camera tagged MainCamera: the hologram does not know where the user is."));
            }
            else if (camera.farClipPlane < 5)
            {
                findings.Add(new Finding(Verdict.Unsure, camera.name, "It sees no farther than " + camera.farClipPlane + " m."));
            }
            return findings;
        }
    }
}
