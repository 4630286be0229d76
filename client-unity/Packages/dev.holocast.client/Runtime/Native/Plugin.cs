using System;

namespace Holocast.Native
{
    // Whether the native library is there and of this package's version.
    static class Plugin
    {
        static string problem;
        static bool looked;

        // What is wrong with the library, in a sentence; null = nothing.
        public static string Problem()
        {
            if (!looked)
            {
                problem = Look();
                looked = true;
            }
            return problem;
        }

        public static void Require()
        {
            string p = Problem();
            if (p != null)
            {
                throw new HolocastException(p);
            }
        }

        static string Look()
        {
            try
            {
                uint version = NativeMethods.hc_abi_version();
                if (version == Abi.Version)
                {
                    return null;
                }
                return "The native library " + File + " has interface version " + version + ", this package needs " + Abi.Version
                    + ": install the library of the package's own release.";
            }
            catch (DllNotFoundException)
            {
                return "The native library " + File + " for " + Platform + " is missing or cannot be loaded: install it as the package's README says, then restart.";
            }
            catch (BadImageFormatException)
            {
                return "The native library " + File + " is not one for " + Platform + ": install that of the package's release, then restart.";
            }
            catch (EntryPointNotFoundException)
            {
                return "The native library " + File + " is not Holocast's, or too old: install that of the package's release, then restart.";
            }
        }

        // The library's file in the package.
        public static string File
        {
            get
            {
#if UNITY_WSA && !UNITY_EDITOR
                return "Plugins/WSA/ARM64/holocast.dll";
#elif UNITY_ANDROID && !UNITY_EDITOR
                return "Plugins/Android/arm64-v8a/libholocast.so";
#elif UNITY_EDITOR_OSX || (UNITY_STANDALONE_OSX && !UNITY_EDITOR)
                return "Plugins/macOS/libholocast.dylib";
#elif UNITY_EDITOR_LINUX || (UNITY_STANDALONE_LINUX && !UNITY_EDITOR)
                return "Plugins/x86_64/libholocast.so";
#else
                return "Plugins/x86_64/holocast.dll";
#endif
            }
        }

        public static string Platform
        {
            get
            {
#if UNITY_WSA && !UNITY_EDITOR
                return "HoloLens 2 (UWP, ARM64)";
#elif UNITY_ANDROID && !UNITY_EDITOR
                return "Android (ARM64)";
#elif UNITY_EDITOR_OSX || (UNITY_STANDALONE_OSX && !UNITY_EDITOR)
                return "macOS";
#elif UNITY_EDITOR_LINUX || (UNITY_STANDALONE_LINUX && !UNITY_EDITOR)
                return "Linux (x86_64)";
#else
                return "Windows (x86_64)";
#endif
            }
        }
    }
}
