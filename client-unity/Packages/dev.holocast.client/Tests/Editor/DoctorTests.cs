using System.Collections.Generic;
using System.Linq;
using Holocast.Editor;
using NUnit.Framework;
using UnityEditor;
using UnityEngine;
using UnityEngine.Rendering;

namespace Holocast.Tests
{
    // Findings of the Holocast › Troubleshoot window.
    public sealed class DoctorTests
    {
        [Test]
        public void MissingLibrary()
        {
            Assert.AreEqual(Verdict.Good, Doctor.OfLibrary(null).Verdict);
            Finding f = Doctor.OfLibrary("The library is missing.");
            Assert.AreEqual(Verdict.Bad, f.Verdict);
            Assert.AreEqual("The library is missing.", f.Sentence);
        }

        // count: copies of the library that Unity finds, in Assets or in the package.
        [TestCase(0, Verdict.Bad)]
        [TestCase(1, Verdict.Good)]
        [TestCase(2, Verdict.Bad)]
        public void DeviceLibrary(int count, Verdict verdict)
        {
            List<string> installed = new[] { "Assets/Plugins/Holocast/WSA/ARM64/holocast.dll",
                "Packages/dev.holocast.client/Plugins/WSA/ARM64/holocast.dll" }.Take(count).ToList();
            Finding f = Doctor.OfDeviceLibrary(NativeLibrary.HoloLens, installed);
            Assert.AreEqual(verdict, f.Verdict, f.Sentence);
            Assert.IsTrue(installed.All(f.Sentence.Contains));
        }

        [Test]
        public void MissingLibraryOfAndroid()
        {
            Finding f = Doctor.OfDeviceLibrary(NativeLibrary.Android, new List<string>());
            Assert.AreEqual(Verdict.Bad, f.Verdict);
            StringAssert.Contains("Android (ARM64)", f.Sentence);
        }

        [TestCase(GraphicsDeviceType.Direct3D11, true, Verdict.Good)]
        [TestCase(GraphicsDeviceType.Vulkan, true, Verdict.Unsure)]
        [TestCase(GraphicsDeviceType.Direct3D11, false, Verdict.Bad)]
        public void GraphicsSupport(GraphicsDeviceType device, bool compute, Verdict verdict)
        {
            Assert.AreEqual(verdict, Doctor.OfGraphics(device, compute).Verdict);
        }

        [TestCase("", Verdict.Good)]
        [TestCase("UniversalRenderPipelineAsset", Verdict.Good)]
        [TestCase("HDRenderPipelineAsset", Verdict.Unsure)]
        public void Pipelines(string asset, Verdict verdict)
        {
            Assert.AreEqual(verdict, Doctor.OfPipeline(asset).Verdict);
        }

        [Test]
        public void HoloLensNeedsIl2cpp()
        {
            Assert.AreEqual(Verdict.Good, Doctor.OfBackend(ScriptingImplementation.IL2CPP).Verdict);
            Assert.AreEqual(Verdict.Bad, Doctor.OfBackend(ScriptingImplementation.Mono2x).Verdict);
        }

        [TestCase(ScriptingImplementation.IL2CPP, AndroidArchitecture.ARM64, GraphicsDeviceType.Vulkan, true, "")]
        [TestCase(ScriptingImplementation.Mono2x, AndroidArchitecture.ARM64, GraphicsDeviceType.Vulkan, true, "IL2CPP")]
        [TestCase(ScriptingImplementation.IL2CPP, AndroidArchitecture.ARMv7, GraphicsDeviceType.Vulkan, true, "ARM64")]
        [TestCase(ScriptingImplementation.IL2CPP, AndroidArchitecture.ARM64, GraphicsDeviceType.Direct3D11, true,
            "Vulkan")]
        [TestCase(ScriptingImplementation.IL2CPP, AndroidArchitecture.ARM64, GraphicsDeviceType.Vulkan, false,
            "INTERNET")]
        public void AndroidNeeds(ScriptingImplementation backend, AndroidArchitecture architecture,
            GraphicsDeviceType graphics, bool internet, string named)
        {
            Finding f = Doctor.OfAndroid(backend, architecture, new[] { graphics }, internet);
            Assert.AreEqual(named.Length == 0 ? Verdict.Good : Verdict.Bad, f.Verdict);
            StringAssert.Contains(named, f.Sentence);
        }

        [Test]
        public void EmptyScene()
        {
            List<Finding> f = Doctor.OfScene(new HolocastSession[0], new HolocastPoints[0], new HolocastSphere[0],
                null);
            Assert.AreEqual(2, f.Count(x => x.Verdict == Verdict.Bad));
        }

        static void Good(List<Finding> findings)
        {
            Assert.IsFalse(findings.Any(f => f.Verdict == Verdict.Bad),
                string.Join("; ", findings.Select(f => f.Sentence)));
        }

        [Test]
        public void SceneChecks()
        {
            var o = new GameObject("Hologram");
            o.SetActive(false);
            var eyes = new GameObject("Eyes").AddComponent<Camera>();
            try
            {
                var session = o.AddComponent<HolocastSession>();
                var noPoints = new HolocastPoints[0];
                var noSpheres = new HolocastSphere[0];
                List<Finding> without = Doctor.OfScene(new[] { session }, noPoints, noSpheres, eyes);
                Assert.IsTrue(without.Any(f => f.Verdict == Verdict.Bad && f.Sentence.Contains("HolocastPoints")));
                var points = o.AddComponent<HolocastPoints>();
                Good(Doctor.OfScene(new[] { session }, new[] { points }, noSpheres, eyes));
                var sphere = o.AddComponent<HolocastSphere>();
                Good(Doctor.OfScene(new[] { session }, noPoints, new[] { sphere }, eyes)); // 360° video alone
                session.Url = ""; // joined by menu or QR code
                Good(Doctor.OfScene(new[] { session }, new[] { points }, noSpheres, eyes));
                session.Url = "two words";
                Assert.IsTrue(Doctor.OfScene(new[] { session }, new[] { points }, noSpheres, eyes)
                    .Any(f => f.Verdict == Verdict.Bad));
            }
            finally
            {
                Object.DestroyImmediate(o);
                Object.DestroyImmediate(eyes.gameObject);
            }
        }
    }
}
