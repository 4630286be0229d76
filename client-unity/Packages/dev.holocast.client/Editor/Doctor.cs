using System.Collections.Generic;
using Holocast.Native;
using UnityEditor;
using UnityEditor.Build;
using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast.Editor
{
    /// <summary>Outcome of a check.</summary>
    public enum Verdict
    {
        /// <summary>No problem found.</summary>
        Good,

        /// <summary>May be a problem.</summary>
        Unsure,

        /// <summary>A problem that must be fixed.</summary>
        Bad,
    }

    // Result of one check, with the fix if it failed.
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

    // Checks the library, graphics, project settings and scene for causes of a missing hologram, in
    // order of dependency.
    static class Doctor
    {
        public static List<Finding> Examine()
        {
            var findings = new List<Finding>();
            findings.Add(OfLibrary(Plugin.Problem()));
            bool hololens = EditorUserBuildSettings.activeBuildTarget == BuildTarget.WSAPlayer;
            bool android = EditorUserBuildSettings.activeBuildTarget == BuildTarget.Android;
            if (hololens || android)
            {
                NativeLibrary library = hololens ? NativeLibrary.HoloLens : NativeLibrary.Android;
                findings.Add(OfDeviceLibrary(library, InstallLibrary.Installed(library)));
            }
            findings.Add(OfGraphics(SystemInfo.graphicsDeviceType, SystemInfo.supportsComputeShaders));
            findings.Add(OfPipeline(GraphicsSettings.currentRenderPipeline == null
                ? "" : GraphicsSettings.currentRenderPipeline.GetType().Name));
            if (hololens)
            {
                findings.Add(OfCapabilities());
                findings.Add(OfBackend(PlayerSettings.GetScriptingBackend(NamedBuildTarget.WindowsStoreApps)));
            }
            if (android)
            {
                findings.Add(OfAndroid(PlayerSettings.GetScriptingBackend(NamedBuildTarget.Android),
                    PlayerSettings.Android.targetArchitectures, PlayerSettings.GetGraphicsAPIs(BuildTarget.Android),
                    PlayerSettings.Android.forceInternetPermission));
            }
            findings.AddRange(OfScene(
                Object.FindObjectsByType<HolocastSession>(FindObjectsSortMode.None),
                    Object.FindObjectsByType<HolocastPoints>(FindObjectsSortMode.None),
                    Object.FindObjectsByType<HolocastSphere>(FindObjectsSortMode.None), Camera.main));
            return findings;
        }

        public static Finding OfLibrary(string problem)
        {
            return problem == null
                ? new Finding(Verdict.Good, "Native library", Plugin.File
                    + " is installed and its interface version matches.")
                : new Finding(Verdict.Bad, "Native library", problem);
        }

        // installed: paths of the libraries that Unity would add to the app.
        public static Finding OfDeviceLibrary(NativeLibrary library, List<string> installed)
        {
            const string subject = "Device's library";
            switch (installed.Count)
            {
                case 0:
                    return new Finding(Verdict.Bad, subject, "The library for " + library.Platform
                        + " is missing: the app would build, then fail on the device. Install a release of the"
                        + " package, or choose Holocast › Install Library….");
                case 1: return new Finding(Verdict.Good, subject, installed[0] + " is installed.");
                default:
                    return new Finding(Verdict.Bad, subject, string.Join(" and ", installed)
                        + " collide in a build: remove all but one.");
            }
        }

        public static Finding OfGraphics(GraphicsDeviceType device, bool compute)
        {
            if (!compute)
            {
                return new Finding(Verdict.Bad, "Graphics", device
                    + " on this machine lacks structured buffers, which point rendering needs.");
            }
            return device == GraphicsDeviceType.Direct3D11
                ? new Finding(Verdict.Good, "Graphics", "Direct3D 11.")
                : new Finding(Verdict.Unsure, "Graphics", device
                    + ": the shaders are tested on Direct3D 11 and Vulkan only.");
        }

        // asset: type of the pipeline's asset; empty for the built-in pipeline.
        public static Finding OfPipeline(string asset)
        {
            const string subject = "Render pipeline";
            switch (asset)
            {
                case "": return new Finding(Verdict.Good, subject, "Built-in.");
                case "UniversalRenderPipelineAsset": return new Finding(Verdict.Good, subject, "Universal.");
                default:
                    return new Finding(Verdict.Unsure, subject,
                        "The shaders are for the built-in pipeline and URP, and untested with " + asset + ".");
            }
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
                ? new Finding(Verdict.Good, "Capabilities", "All required capabilities are enabled.")
                : new Finding(Verdict.Bad, "Capabilities", string.Join(", ", missing)
                    + " not enabled: choose Holocast › HoloLens 2 › Set Up Project.");
        }

        public static Finding OfBackend(ScriptingImplementation backend)
        {
            return backend == ScriptingImplementation.IL2CPP
                ? new Finding(Verdict.Good, "Scripting backend", "IL2CPP.")
                : new Finding(Verdict.Bad, "Scripting backend", backend
                    + " does not run on UWP: choose Holocast › HoloLens 2 › Set Up Project.");
        }

        public static Finding OfAndroid(ScriptingImplementation backend, AndroidArchitecture architectures,
            GraphicsDeviceType[] graphics, bool internet)
        {
            var wrong = new List<string>();
            if (backend != ScriptingImplementation.IL2CPP)
            {
                wrong.Add("the scripting backend is " + backend + " instead of IL2CPP");
            }
            if (architectures != AndroidArchitecture.ARM64)
            {
                wrong.Add("the architecture is " + architectures + " instead of ARM64");
            }
            if (graphics.Length == 0 || graphics[0] != GraphicsDeviceType.Vulkan)
            {
                wrong.Add("the first graphics API is not Vulkan");
            }
            if (!internet)
            {
                wrong.Add("the app may lack the permission INTERNET");
            }
            return wrong.Count == 0
                ? new Finding(Verdict.Good, "Android", "IL2CPP, ARM64, Vulkan and INTERNET.")
                : new Finding(Verdict.Bad, "Android", Messages.Sentence(string.Join("; ", wrong)
                    + ": choose Holocast › Android XR › Set Up Project"));
        }

        public static List<Finding> OfScene(HolocastSession[] sessions, HolocastPoints[] points,
            HolocastSphere[] spheres, Camera camera)
        {
            var findings = new List<Finding>();
            if (sessions.Length == 0)
            {
                findings.Add(new Finding(Verdict.Bad, "Scene",
                    "No HolocastSession: choose GameObject › Holocast › Hologram."));
            }
            foreach (HolocastSession session in sessions)
            {
                if (session.Url.Length == 0)
                {
                    findings.Add(new Finding(Verdict.Good, session.name,
                        "No address: the user joins by menu or QR code."));
                }
                else if (!HolocastAddress.TryParse(session.Url, out _))
                {
                    findings.Add(new Finding(Verdict.Bad, session.name, "“" + session.Url
                        + "” is not a session address."));
                }
                else if (session.Message.Length > 0)
                {
                    findings.Add(new Finding(session.State == HolocastState.Failed ? Verdict.Bad : Verdict.Unsure,
                        session.name, session.Message));
                }
                else
                {
                    findings.Add(new Finding(Verdict.Good, session.name, session.Url
                        + (Application.isPlaying ? ", " + session.State : "")));
                }
                if (points.Length == 0 && spheres.Length == 0)
                {
                    findings.Add(new Finding(Verdict.Bad, session.name,
                        "Nothing displays its frames: add a HolocastPoints, or a HolocastSphere for 360° video."));
                }
            }
            if (camera == null)
            {
                findings.Add(new Finding(Verdict.Bad, "Scene",
                    "No camera is tagged MainCamera: the hologram cannot be placed relative to the user."));
            }
            else if (camera.farClipPlane < 5)
            {
                findings.Add(new Finding(Verdict.Unsure, camera.name, "Its far clip plane is at " + camera.farClipPlane
                    + " m, which may hide the hologram."));
            }
            return findings;
        }
    }
}
