using UnityEditor;
using UnityEditor.Build;
using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast.Editor
{
    // The menu item Holocast › Android XR, which sets up a project for Quest 3 and other Android
    // headsets.
    static class AndroidSetup
    {
        [MenuItem("Holocast/Android XR/Set Up Project", priority = 30)]
        public static void SetUp()
        {
            if (!BuildPipeline.IsBuildTargetSupported(BuildTargetGroup.Android, BuildTarget.Android)
                || !EditorUserBuildSettings.SwitchActiveBuildTarget(BuildTargetGroup.Android, BuildTarget.Android))
            {
                EditorUtility.DisplayDialog("Holocast", "This Unity lacks the module Android Build Support: add it in "
                    + "Unity Hub › Installs › Add modules, then set up the project again.", "OK");
                return;
            }
            PlayerSettings.SetScriptingBackend(NamedBuildTarget.Android, ScriptingImplementation.IL2CPP);
            PlayerSettings.SetUseDefaultGraphicsAPIs(BuildTarget.Android, false);
            PlayerSettings.SetGraphicsAPIs(BuildTarget.Android, new[] { GraphicsDeviceType.Vulkan });
            PlayerSettings.Android.targetArchitectures = AndroidArchitecture.ARM64;
            PlayerSettings.Android.minSdkVersion = AndroidSdkVersions.AndroidApiLevel29;
            PlayerSettings.Android.forceInternetPermission = true;
            Debug.Log("Holocast: project set up for Android XR. Now enable OpenXR, the headset's feature group and a hand "
                + "or controller profile in Project Settings › XR Plug-in Management.");
            SettingsService.OpenProjectSettings("Project/XR Plug-in Management");
        }
    }
}
