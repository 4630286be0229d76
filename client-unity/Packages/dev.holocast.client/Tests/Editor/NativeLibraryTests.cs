using System;
using System.Collections.Generic;
using System.Linq;
using Holocast.Editor;
using NUnit.Framework;
using UnityEditor.PackageManager;

namespace Holocast.Tests
{
    // Headers of native libraries, as Holocast › Install Library… reads them.
    public sealed class NativeLibraryTests
    {
        static byte[] Pe(int machine, bool store = false, bool dll = true)
        {
            var b = new byte[256];
            Put(b, 0, 2, 0x5A4D);
            Put(b, 60, 4, 64);
            Put(b, 64, 4, 0x4550);
            Put(b, 68, 2, machine);
            Put(b, 86, 2, dll ? 0x2022 : 0x22);
            Put(b, 88, 2, 0x20B);
            Put(b, 158, 2, store ? 0x1160 : 0x160);
            return b;
        }

        static byte[] Elf(int machine, bool android = false, int type = 3, int bits = 2, int page = 0x4000)
        {
            var b = new byte[216];
            Put(b, 0, 4, 0x464C457F);
            Put(b, 4, 1, bits);
            Put(b, 5, 1, 1);
            Put(b, 16, 2, type);
            Put(b, 18, 2, machine);
            Put(b, 32, 8, 64);
            Put(b, 54, 2, 56);
            Put(b, 56, 2, 2);
            Put(b, 64, 4, 4);
            Put(b, 72, 8, 176);
            Put(b, 96, 8, 24);
            Put(b, 120, 4, 1);
            Put(b, 168, 8, page);
            Put(b, 176, 4, 8);
            Put(b, 180, 4, 4);
            Put(b, 184, 4, 1);
            Put(b, 188, 8, android ? 0x0064696F72646E41 : 0x0064696F72646E42);
            return b;
        }

        static byte[] Mach(long processor, int type = 6)
        {
            var b = new byte[32];
            Put(b, 0, 4, 0xFEEDFACF);
            Put(b, 4, 4, processor);
            Put(b, 12, 4, type);
            return b;
        }

        // Header of a file for several architectures: their count and the first processor.
        static byte[] Fat(byte count, byte processor)
        {
            var b = new byte[64];
            Put(b, 0, 4, 0xBEBAFECA);
            b[7] = count;
            b[8] = 1;
            b[11] = processor;
            return b;
        }

        static void Put(byte[] b, int at, int bytes, long value)
        {
            for (int i = 0; i < bytes; i++)
            {
                b[at + i] = (byte)(value >> 8 * i);
            }
        }

        static readonly Dictionary<string, byte[]> files = new Dictionary<string, byte[]>
        {
            ["windows"] = Pe(0x8664),
            ["hololens"] = Pe(0xAA64, true),
            ["linux"] = Elf(62, page: 0x1000),
            ["android"] = Elf(183, true),
            ["mac arm64"] = Mach(0x0100000C),
            ["mac universal"] = Fat(2, 7),
            ["windows arm64"] = Pe(0xAA64),
            ["uwp x64"] = Pe(0x8664, true),
            ["windows x86"] = Pe(0x14C),
            ["program"] = Pe(0x8664, false, false),
            ["linux arm64"] = Elf(183),
            ["android x64"] = Elf(62, true),
            ["android 4 KiB"] = Elf(183, true, page: 0x1000),
            ["elf program"] = Elf(62, false, 2),
            ["elf 32"] = Elf(40, true, 3, 1),
            ["mac program"] = Mach(0x0100000C, 2),
            ["mac ppc"] = Mach(18),
            ["java"] = Fat(52, 0),
            ["text"] = new byte[] { 1, 2, 3, 4, 5 },
            ["empty"] = new byte[0],
        };

        [TestCase("windows", "x86_64/holocast.dll")]
        [TestCase("hololens", "WSA/ARM64/holocast.dll")]
        [TestCase("linux", "x86_64/libholocast.so")]
        [TestCase("android", "Android/arm64-v8a/libholocast.so")]
        [TestCase("mac arm64", "macOS/libholocast.dylib")]
        [TestCase("mac universal", "macOS/libholocast.dylib")]
        public void Recognized(string file, string path)
        {
            NativeLibrary library = NativeLibrary.Recognize(files[file], out string problem);
            Assert.IsTrue(library != null, problem);
            Assert.AreEqual(path, library.Path);
            Assert.AreEqual(null, problem);
        }

        [TestCase("windows arm64", "HoloLens 2 needs a UWP build")]
        [TestCase("uwp x64", "UWP on x86_64")]
        [TestCase("windows x86", "another processor")]
        [TestCase("program", "not a DLL")]
        [TestCase("linux arm64", "Linux on ARM64")]
        [TestCase("android x64", "Android on x86_64")]
        [TestCase("android 4 KiB", "max-page-size=16384")]
        [TestCase("elf program", "shared library")]
        [TestCase("elf 32", "64-bit")]
        [TestCase("mac program", "dynamic library")]
        [TestCase("mac ppc", "another processor")]
        [TestCase("java", "not a native library")]
        [TestCase("text", "not a native library")]
        [TestCase("empty", "truncated")]
        public void Refused(string file, string problem)
        {
            Assert.AreEqual(null, NativeLibrary.Recognize(files[file], out string reason));
            StringAssert.Contains(problem, reason);
        }

        [Test]
        public void AnyBytes()
        {
            var random = new Random(1);
            foreach (byte[] whole in files.Values)
            {
                for (int length = 0; length < whole.Length; length++)
                {
                    NativeLibrary.Recognize(whole.Take(length).ToArray(), out _);
                }
                for (int i = 0; i < 2000 && whole.Length > 4; i++)
                {
                    var damaged = (byte[])whole.Clone();
                    damaged[random.Next(4, damaged.Length)] = (byte)random.Next();
                    damaged[random.Next(4, damaged.Length)] = 0xFF;
                    NativeLibrary.Recognize(damaged, out _);
                }
            }
        }

        // A note that never ends must not hang the editor.
        [Test]
        public void EndlessNotes()
        {
            byte[] b = Elf(183);
            Put(b, 96, 8, long.MaxValue);
            Put(b, 180, 4, 0xFFFFFFFF);
            Assert.AreEqual(null, NativeLibrary.Recognize(b, out _));
        }

        [TestCase(false, PackageSource.Git, "Assets/Plugins/Holocast/WSA/ARM64/holocast.dll")]
        [TestCase(false, PackageSource.Embedded, "Assets/Plugins/Holocast/WSA/ARM64/holocast.dll")]
        [TestCase(true, PackageSource.Embedded, "Packages/dev.holocast.client/Plugins/WSA/ARM64/holocast.dll")]
        [TestCase(true, PackageSource.Local, "Packages/dev.holocast.client/Plugins/WSA/ARM64/holocast.dll")]
        [TestCase(true, PackageSource.Git, null)]
        [TestCase(true, PackageSource.LocalTarball, null)]
        [TestCase(true, PackageSource.Registry, null)]
        public void Destination(bool packaged, PackageSource source, string asset)
        {
            Assert.AreEqual(asset, InstallLibrary.Destination(NativeLibrary.HoloLens, packaged, source));
        }
    }
}
