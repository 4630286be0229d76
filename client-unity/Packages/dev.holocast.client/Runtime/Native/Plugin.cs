using System;

namespace Holocast.Native
{
    // Checks that the native library is installed and matches this package's version.
    static class Plugin
    {
        static string problem;
        static bool looked;

        // Why the library cannot be used, as a sentence; null if it can.
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
                return "The native library " + File + " has interface version " + version + ", but this package needs "
                    + Abi.Version
                    + ": install the library from the same release as the package.";
            }
            catch (DllNotFoundException)
            {
                return "The native library " + File + " for " + Platform
                    + " is missing or failed to load: install a release of the package, or choose Holocast › "
                    + "Install Library…, then restart.";
            }
            catch (BadImageFormatException)
            {
                return "The native library " + File + " was built for another platform than " + Platform
                    + ": install the right one from the package's release, then restart.";
            }
            catch (EntryPointNotFoundException)
            {
                return "The native library " + File
                    + " is outdated or not Holocast's: install the one from the package's release, then restart.";
            }
        }

        // Path of the library's file in the package.
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
