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

        // Wherever Unity finds it: in the package or in Assets.
        [TestCase(0, Verdict.Bad)]
        [TestCase(1, Verdict.Good)]
        [TestCase(2, Verdict.Bad)]
        public void DeviceLibrary(int count, Verdict verdict)
        {
            List<string> installed = new[] { "Assets/Plugins/Holocast/WSA/ARM64/holocast.dll",
                "Packages/dev.holocast.client/Plugins/WSA/ARM64/holocast.dll" }.Take(count).ToList();
            Finding f = Doctor.OfDeviceLibrary(installed);
            Assert.AreEqual(verdict, f.Verdict, f.Sentence);
            Assert.IsTrue(installed.All(f.Sentence.Contains));
        }

        [TestCase(GraphicsDeviceType.Direct3D11, true, Verdict.Good)]
        [TestCase(GraphicsDeviceType.Vulkan, true, Verdict.Unsure)]
        [TestCase(GraphicsDeviceType.Direct3D11, false, Verdict.Bad)]
        public void GraphicsSupport(GraphicsDeviceType device, bool compute, Verdict verdict)
        {
            Assert.AreEqual(verdict, Doctor.OfGraphics(device, compute).Verdict);
        }

        [Test]
        public void HoloLensNeedsIl2cpp()
        {
            Assert.AreEqual(Verdict.Good, Doctor.OfBackend(ScriptingImplementation.IL2CPP).Verdict);
            Assert.AreEqual(Verdict.Bad, Doctor.OfBackend(ScriptingImplementation.Mono2x).Verdict);
        }

        [Test]
        public void EmptyScene()
        {
            List<Finding> f = Doctor.OfScene(new HolocastSession[0], new HolocastPoints[0], null);
            Assert.AreEqual(2, f.Count(x => x.Verdict == Verdict.Bad));
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
                List<Finding> without = Doctor.OfScene(new[] { session }, new HolocastPoints[0], eyes);
                Assert.IsTrue(without.Any(f => f.Verdict == Verdict.Bad && f.Sentence.Contains("HolocastPoints")));
                var points = o.AddComponent<HolocastPoints>();
                List<Finding> with = Doctor.OfScene(new[] { session }, new[] { points }, eyes);
                Assert.IsFalse(with.Any(f => f.Verdict == Verdict.Bad),
                    string.Join("; ", with.Select(f => f.Sentence)));
                session.Url = "two words";
                Assert.IsTrue(Doctor.OfScene(new[] { session }, new[] { points }, eyes)
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
