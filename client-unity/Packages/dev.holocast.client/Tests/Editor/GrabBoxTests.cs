using NUnit.Framework;
using UnityEngine;

namespace Holocast.Tests
{
    // Which pinches hold a hologram whose subject is 1 × 1.8 × 1 m, two metres ahead.
    public sealed class GrabBoxTests
    {
        static readonly Vector3 Middle = new Vector3(0, 0, 2);
        static readonly Vector3 Size = new Vector3(1, 1.8f, 1);

        [TestCase(0f, 0f, 2f, true)]
        [TestCase(0.55f, 0f, 2f, true)] // within the margin
        [TestCase(0.7f, 0f, 2f, false)]
        [TestCase(0f, -1.5f, 2f, false)]
        public void HandNearTheSubject(float x, float y, float z, bool holds)
        {
            Assert.AreEqual(holds, Holds(new Vector3(x, y, z), Vector3.up * 10, Vector3.up, 1));
        }

        [TestCase(0f, 0f, 1f, true)]
        [TestCase(0.2f, 0.3f, 1f, true)]
        [TestCase(0.6f, 0f, 1f, false)] // past the side
        [TestCase(0f, 0f, -1f, false)] // away from it
        public void PointerFromAfar(float x, float y, float z, bool holds)
        {
            Assert.AreEqual(holds, Holds(Vector3.down * 10, Vector3.zero, new Vector3(x, y, z), 1));
        }

        [Test]
        public void BoxScalesWithTheHologram()
        {
            var at = new Vector3(0.9f, 0, 2);
            Assert.IsFalse(Holds(at, Vector3.up * 10, Vector3.up, 1));
            Assert.IsTrue(Holds(at, Vector3.up * 10, Vector3.up, 2));
        }

        static bool Holds(Vector3 at, Vector3 from, Vector3 along, float scale)
        {
            var hologram = new GameObject("Hologram");
            try
            {
                hologram.transform.SetPositionAndRotation(new Vector3(1, 2, 3), Quaternion.AngleAxis(180, Vector3.up));
                hologram.transform.localScale = Vector3.one * scale;
                var hand = new Hand { Position = at, Rotation = Quaternion.identity, Pointer = new Ray(from, along) };
                return GrabBox.Holds(hologram.transform, Middle, Size, hand);
            }
            finally
            {
                Object.DestroyImmediate(hologram);
            }
        }
    }
}
