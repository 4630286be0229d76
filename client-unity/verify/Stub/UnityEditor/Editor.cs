using System;
using UnityEngine;
using UnityEngine.Rendering;

namespace UnityEditor
{
    public class Editor : ScriptableObject
    {
        public UnityEngine.Object target { get; set; }
        public virtual void OnInspectorGUI()
        {
        }

        public virtual bool RequiresConstantRepaint() => false;
        public bool DrawDefaultInspector() => false;
    }

    public sealed class CustomEditor : Attribute
    {
        public CustomEditor(Type inspectedType)
        {
        }
    }

    [AttributeUsage(AttributeTargets.Method, AllowMultiple = true)]
    public sealed class MenuItem : Attribute
    {
        public MenuItem(string itemName)
        {
        }

        public MenuItem(string itemName, bool isValidateFunction, int priority)
        {
        }

        public int priority;
    }

    public sealed class MenuCommand
    {
        public UnityEngine.Object context;
    }

    public class EditorWindow : ScriptableObject
    {
        public GUIContent titleContent { get; set; }
        public Vector2 minSize { get; set; }

        public static T GetWindow<T>() where T : EditorWindow => Activator.CreateInstance<T>();
        public void Show()
        {
        }

        public void Repaint()
        {
        }
    }

    public enum MessageType
    {
        None = 0,
        Info = 1,
        Warning = 2,
        Error = 3,
    }

    public sealed class EditorGUILayout
    {
        public static void HelpBox(string message, MessageType type)
        {
        }

        public static void LabelField(string label, string label2, params GUILayoutOption[] options)
        {
        }

        public static void Space()
        {
        }

        public static Vector2 BeginScrollView(Vector2 scrollPosition, params GUILayoutOption[] options) =>
            scrollPosition;
        public static void EndScrollView()
        {
        }
    }

    public sealed class EditorUtility
    {
        public static string Stub { get; set; }
        public static bool DisplayDialog(string title, string message, string ok)
        {
            Stub = message;
            return true;
        }
        public static string OpenFilePanel(string title, string directory, string extension) => "";

        public static void RevealInFinder(string path)
        {
        }
    }

    public sealed class GameObjectUtility
    {
        public static void SetParentAndAlign(GameObject child, GameObject parent)
        {
        }
    }

    public sealed class Undo
    {
        public static void RegisterCreatedObjectUndo(UnityEngine.Object objectToUndo, string name)
        {
        }
    }

    public sealed class Selection
    {
        public static GameObject activeGameObject { get; set; }
    }

    public sealed class SettingsService
    {
        public static EditorWindow OpenProjectSettings(string settingsPath = null) => null;
    }

    public class AssetImporter : UnityEngine.Object
    {
        public string assetPath { get; set; }
        public static AssetImporter GetAtPath(string path) => new PluginImporter { assetPath = path };
        public void SaveAndReimport()
        {
        }
    }

    public sealed class PluginImporter : AssetImporter
    {
        public static PluginImporter[] GetImporters(BuildTarget platform) => Array.Empty<PluginImporter>();
        public void SetCompatibleWithAnyPlatform(bool enable)
        {
        }

        public void SetCompatibleWithEditor(bool enable)
        {
        }

        public void SetCompatibleWithPlatform(BuildTarget platform, bool enable)
        {
        }

        public void SetEditorData(string key, string value)
        {
        }

        public void SetPlatformData(BuildTarget platform, string key, string value)
        {
        }
    }

    public sealed class AssetDatabase
    {
        public static void ImportAsset(string path)
        {
        }
    }

    public enum BuildTarget
    {
        StandaloneOSX = 2,
        Android = 13,
        StandaloneWindows64 = 19,
        WSAPlayer = 21,
        StandaloneLinux64 = 24,
    }

    public enum BuildTargetGroup
    {
        Android = 7,
        Standalone = 1,
        WSA = 14,
    }

    public enum WSAUWPBuildType
    {
        XAML = 0,
        D3D = 1,
        ExecutableOnly = 2,
    }

    public enum ScriptingImplementation
    {
        Mono2x = 0,
        IL2CPP = 1,
    }

    public class EditorUserBuildSettings
    {
        public static BuildTarget activeBuildTarget { get; set; } = BuildTarget.StandaloneWindows64;
        public static WSAUWPBuildType wsaUWPBuildType { get; set; }
        public static string wsaArchitecture { get; set; }
        public static bool SwitchActiveBuildTarget(BuildTargetGroup targetGroup, BuildTarget target) => true;
    }

    public class EditorBuildSettingsScene
    {
        public bool enabled { get; set; }
        public string path { get; set; }
    }

    public class EditorBuildSettings
    {
        public static EditorBuildSettingsScene[] scenes { get; set; } = Array.Empty<EditorBuildSettingsScene>();
    }

    [Flags]
    public enum AndroidArchitecture : uint
    {
        ARMv7 = 1,
        ARM64 = 2,
    }

    public enum AndroidSdkVersions
    {
        AndroidApiLevel29 = 29,
    }

    public sealed class PlayerSettings
    {
        public sealed class Android
        {
            public static AndroidArchitecture targetArchitectures { get; set; }
            public static AndroidSdkVersions minSdkVersion { get; set; }
            public static bool forceInternetPermission { get; set; }
        }

        public static GraphicsDeviceType[] GetGraphicsAPIs(BuildTarget platform) => new GraphicsDeviceType[0];
        public enum WSACapability
        {
            EnterpriseAuthentication = 0,
            InternetClient = 1,
            InternetClientServer = 2,
            PrivateNetworkClientServer = 5,
            WebCam = 9,
            SpatialPerception = 23,
            GazeInput = 37,
        }

        public enum WSATargetFamily
        {
            Holographic = 3,
        }

        public static void SetScriptingBackend(Build.NamedBuildTarget buildTarget, ScriptingImplementation backend)
        {
        }

        public static ScriptingImplementation GetScriptingBackend(Build.NamedBuildTarget buildTarget) =>
            ScriptingImplementation.IL2CPP;
        public static void SetUseDefaultGraphicsAPIs(BuildTarget platform, bool automatic)
        {
        }

        public static void SetGraphicsAPIs(BuildTarget platform, GraphicsDeviceType[] apis)
        {
        }

        public sealed class WSA
        {
            public static void SetCapability(WSACapability capability, bool value)
            {
            }

            public static bool GetCapability(WSACapability capability) => true;
            public static void SetTargetDeviceFamily(WSATargetFamily family, bool value)
            {
            }
        }
    }

    [Flags]
    public enum BuildOptions
    {
        None = 0,
    }

    public struct BuildPlayerOptions
    {
        public string[] scenes { get; set; }
        public string locationPathName { get; set; }
        public BuildTarget target { get; set; }
        public BuildTargetGroup targetGroup { get; set; }
        public BuildOptions options { get; set; }
    }

    public class BuildPipeline
    {
        public static bool Stub { get; set; } = true;
        public static bool IsBuildTargetSupported(BuildTargetGroup buildTargetGroup, BuildTarget target) => Stub;
        public static Build.Reporting.BuildReport BuildPlayer(BuildPlayerOptions buildPlayerOptions) =>
            new Build.Reporting.BuildReport();
    }
}

namespace UnityEditor.Build
{
    public readonly struct NamedBuildTarget
    {
        public static readonly NamedBuildTarget WindowsStoreApps;
        public static readonly NamedBuildTarget Android;
    }
}

namespace UnityEditor.Build.Reporting
{
    public enum BuildResult
    {
        Unknown = 0,
        Succeeded = 1,
    }

    public struct BuildSummary
    {
        public BuildResult result => BuildResult.Unknown;
        public int totalErrors => 0;
    }

    public sealed class BuildReport : UnityEngine.Object
    {
        public BuildSummary summary => default;
    }
}

namespace UnityEditor.PackageManager
{
    public enum PackageSource
    {
        Unknown = 0,
        Registry = 1,
        BuiltIn = 2,
        Embedded = 3,
        Local = 4,
        Git = 5,
        LocalTarball = 6,
    }

    public class PackageInfo
    {
        public PackageSource source => PackageSource.Embedded;
        public static PackageInfo FindForAssetPath(string assetPath) => new PackageInfo();
    }

    public sealed class Client
    {
        public static void Resolve()
        {
        }
    }
}
