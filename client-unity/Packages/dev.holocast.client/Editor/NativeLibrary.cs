using System;
using System.Collections.Generic;
using System.IO;

namespace Holocast.Editor
{
    // A platform's build of the native library. verify/Tool compiles this file too.
    sealed class NativeLibrary
    {
        public static readonly NativeLibrary Windows = new NativeLibrary("Windows (x86_64)", "x86_64/holocast.dll");
        public static readonly NativeLibrary Linux = new NativeLibrary("Linux (x86_64)", "x86_64/libholocast.so");
        public static readonly NativeLibrary MacOs = new NativeLibrary("macOS", "macOS/libholocast.dylib");

        public static readonly NativeLibrary HoloLens =
            new NativeLibrary("HoloLens 2 (UWP, ARM64)", "WSA/ARM64/holocast.dll");

        public static readonly NativeLibrary Android =
            new NativeLibrary("Android (ARM64)", "Android/arm64-v8a/libholocast.so");

        public static readonly NativeLibrary[] All = { Windows, Linux, MacOs, HoloLens, Android };

        public readonly string Platform;

        // Path below a Plugins folder, with forward slashes.
        public readonly string Path;

        NativeLibrary(string platform, string path)
        {
            Platform = platform;
            Path = path;
        }

        // Recognizes a library's platform by its header: PE (Microsoft, PE Format), ELF (System V ABI)
        // or Mach-O (mach-o/loader.h, fat.h). If the result is null, problem completes the sentence
        // "The file …".
        public static NativeLibrary Recognize(byte[] file, out string problem)
        {
            problem = null;
            try
            {
                switch (Number(file, 0, 4))
                {
                    case 0x464C457F: return OfElf(file, out problem);
                    case 0xFEEDFACF: return OfMach(file, out problem);
                    case 0xBEBAFECA: return OfFat(file, out problem);
                }
                if (Number(file, 0, 2) == 0x5A4D)
                {
                    return OfPe(file, out problem);
                }
                problem = "is not a native library";
            }
            catch (EndOfStreamException)
            {
                problem = "is truncated";
            }
            return null;
        }

        static NativeLibrary OfPe(byte[] file, out string problem)
        {
            const int dll = 0x2000, appContainer = 0x1000, pe32Plus = 0x20B;
            long header = (long)Number(file, 60, 4);
            problem = null;
            if (Number(file, header, 4) != 0x4550 || (Number(file, header + 22, 2) & dll) == 0)
            {
                problem = "is not a DLL";
                return null;
            }
            ulong machine = Number(file, header + 4, 2);
            bool store = Number(file, header + 24, 2) == pe32Plus
                && (Number(file, header + 24 + 70, 2) & appContainer) != 0;
            switch (machine)
            {
                case 0x8664 when !store: return Windows;
                case 0xAA64 when store: return HoloLens;
                case 0x8664: problem = "is for UWP on x86_64, which HoloLens 2 does not run"; break;
                case 0xAA64: problem = "is for the desktop on ARM64: HoloLens 2 needs a UWP build"; break;
                default: problem = "is for another processor than x86_64 and ARM64"; break;
            }
            return null;
        }

        static NativeLibrary OfElf(byte[] file, out string problem)
        {
            const int shared = 3, amd64 = 62, aarch64 = 183;
            problem = null;
            if (Number(file, 4, 1) != 2 || Number(file, 5, 1) != 1 || Number(file, 16, 2) != shared)
            {
                problem = "is not a 64-bit shared library";
                return null;
            }
            ulong machine = Number(file, 18, 2);
            bool android = HasAndroidNote(file);
            switch (machine)
            {
                case amd64 when !android: return Linux;
                case aarch64 when android && HasLargePages(file): return Android;
                case aarch64 when android:
                    problem = "is laid out for pages of 4 KiB, and Android needs 16 KiB: link it with "
                        + "-z max-page-size=16384";
                    break;
                case amd64: problem = "is for Android on x86_64, which the package does not support"; break;
                case aarch64: problem = "is for Linux on ARM64, which Unity's editor and player do not support"; break;
                default: problem = "is for another processor than x86_64 and ARM64"; break;
            }
            return null;
        }

        // Offsets of an ELF file's program headers of one type.
        static IEnumerable<long> Programs(byte[] file, ulong type)
        {
            long table = (long)Number(file, 32, 8), size = (long)Number(file, 54, 2), count = (long)Number(file, 56, 2);
            for (long i = 0; i < count; i++)
            {
                if (Number(file, table + i * size, 4) == type)
                {
                    yield return table + i * size;
                }
            }
        }

        // True if all segments are aligned for 16 KiB pages, which Android 15 introduced.
        static bool HasLargePages(byte[] file)
        {
            const ulong load = 1, page = 0x4000;
            foreach (long program in Programs(file, load))
            {
                if (Number(file, program + 48, 8) < page)
                {
                    return false;
                }
            }
            return true;
        }

        // The NDK marks its output with a note whose owner is "Android".
        static bool HasAndroidNote(byte[] file)
        {
            const ulong note = 4;
            foreach (long program in Programs(file, note))
            {
                long at = (long)Number(file, program + 8, 8), end = at + (long)Number(file, program + 32, 8);
                while (at >= 0 && at + 12 <= end)
                {
                    long name = (long)Number(file, at, 4), description = (long)Number(file, at + 4, 4);
                    if (name == 8 && Number(file, at + 12, 8) == 0x0064696F72646E41)
                    {
                        return true;
                    }
                    at += 12 + (name + 3) / 4 * 4 + (description + 3) / 4 * 4;
                }
            }
            return false;
        }

        const ulong machX64 = 0x01000007, machArm64 = 0x0100000C;

        static NativeLibrary OfMach(byte[] file, out string problem)
        {
            const int dylib = 6;
            ulong processor = Number(file, 4, 4);
            problem = Number(file, 12, 4) != dylib ? "is not a dynamic library"
                : processor != machX64 && processor != machArm64
                ? "is for another processor than x86_64 and ARM64" : null;
            return problem == null ? MacOs : null;
        }

        // A file for several architectures, big-endian. Java class files begin with the same four
        // bytes.
        static NativeLibrary OfFat(byte[] file, out string problem)
        {
            ulong count = Big(file, 4);
            problem = "is not a native library";
            if (count == 0 || count > 8)
            {
                return null;
            }
            for (ulong i = 0; i < count; i++)
            {
                ulong processor = Big(file, 8 + 20 * (long)i);
                if (processor == machX64 || processor == machArm64)
                {
                    problem = null;
                    return MacOs;
                }
            }
            return null;
        }

        static ulong Big(byte[] file, long at)
        {
            ulong n = Number(file, at, 4);
            return n >> 24 | (n >> 8 & 0xFF00) | (n & 0xFF00) << 8 | (n & 0xFF) << 24;
        }

        // A little-endian number of up to eight bytes.
        static ulong Number(byte[] file, long at, int bytes)
        {
            if (at < 0 || at > file.Length - bytes)
            {
                throw new EndOfStreamException();
            }
            ulong n = 0;
            for (int i = bytes - 1; i >= 0; i--)
            {
                n = n << 8 | file[at + i];
            }
            return n;
        }
    }
}
