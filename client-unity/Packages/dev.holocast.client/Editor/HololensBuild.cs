using System.IO;
using UnityEditor;
using UnityEditor.Build;
using UnityEditor.Build.Reporting;
using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast.Editor
{
    // The menu item Holocast › HoloLens 2, which sets up a project for the device and builds a
    // Visual Studio solution.
    static class HololensBuild
    {
        const string Folder = "Builds/HoloLens2";

        // Network access as client and server, including private networks; eye and hand tracking;
        // spatial perception; the webcam for QR codes.
        public static readonly PlayerSettings.WSACapability[] Capabilities =
        {
            PlayerSettings.WSACapability.InternetClient,
            PlayerSettings.WSACapability.InternetClientServer,
            PlayerSettings.WSACapability.PrivateNetworkClientServer,
            PlayerSettings.WSACapability.SpatialPerception,
            PlayerSettings.WSACapability.GazeInput,
            PlayerSettings.WSACapability.WebCam,
        };

        [MenuItem("Holocast/HoloLens 2/Set Up Project", priority = 20)]
        public static void SetUp()
        {
            if (!BuildPipeline.IsBuildTargetSupported(BuildTargetGroup.WSA, BuildTarget.WSAPlayer)
                || !EditorUserBuildSettings.SwitchActiveBuildTarget(BuildTargetGroup.WSA, BuildTarget.WSAPlayer))
            {
                EditorUtility.DisplayDialog("Holocast", "This Unity lacks the module Universal Windows Platform Build "
                    + "Support: add it in Unity Hub › Installs › Add modules, then set up the project again.", "OK");
                return;
            }
            EditorUserBuildSettings.wsaUWPBuildType = WSAUWPBuildType.D3D;
            EditorUserBuildSettings.wsaArchitecture = "ARM64";
            PlayerSettings.SetScriptingBackend(NamedBuildTarget.WindowsStoreApps, ScriptingImplementation.IL2CPP);
            PlayerSettings.SetUseDefaultGraphicsAPIs(BuildTarget.WSAPlayer, false);
            PlayerSettings.SetGraphicsAPIs(BuildTarget.WSAPlayer, new[] { GraphicsDeviceType.Direct3D11 });
            PlayerSettings.WSA.SetTargetDeviceFamily(PlayerSettings.WSATargetFamily.Holographic, true);
            foreach (PlayerSettings.WSACapability c in Capabilities)
            {
                PlayerSettings.WSA.SetCapability(c, true);
            }
            Debug.Log(
                "Holocast: project set up for HoloLens 2. Now enable OpenXR and its Microsoft HoloLens feature group "
                + "in Project Settings › XR Plug-in Management.");
            SettingsService.OpenProjectSettings("Project/XR Plug-in Management");
        }

        [MenuItem("Holocast/HoloLens 2/Build for Visual Studio", priority = 21)]
        public static void Build()
        {
            foreach (Finding f in Doctor.Examine())
            {
                if (f.Verdict == Verdict.Bad)
                {
                    EditorUtility.DisplayDialog("Holocast", f.Subject + ": " + f.Sentence, "OK");
                    DoctorWindow.Open();
                    return;
                }
            }
            BuildReport report = BuildPipeline.BuildPlayer(new BuildPlayerOptions
            {
                scenes = Scenes(),
                locationPathName = Folder,
                target = BuildTarget.WSAPlayer,
                targetGroup = BuildTargetGroup.WSA,
                options = BuildOptions.None,
            });
            if (report.summary.result == BuildResult.Succeeded)
            {
                EditorUtility.RevealInFinder(Path.GetFullPath(Folder));
            }
            else
            {
                Debug.LogError("Holocast: build failed with " + report.summary.totalErrors + " errors, logged above.");
            }
        }

        // Scenes from the build settings, or the open scene if there are none.
        static string[] Scenes()
        {
            var scenes = new System.Collections.Generic.List<string>();
            foreach (EditorBuildSettingsScene s in EditorBuildSettings.scenes)
            {
                if (s.enabled)
                {
                    scenes.Add(s.path);
                }
            }
            if (scenes.Count == 0)
            {
                scenes.Add(UnityEngine.SceneManagement.SceneManager.GetActiveScene().path);
            }
            return scenes.ToArray();
        }
    }
}
