using NUnit.Framework;
using UnityEngine;

namespace Holocast.Tests
{
    public sealed class TwoHandsTests
    {
        static void Near(Vector3 want, Vector3 got)
        {
            Assert.IsTrue((want - got).magnitude < 1e-4f, "expected " + want + ", was " + got);
        }

        [Test]
        public void OneHandMovesAndTurns()
        {
            TwoHands hands = TwoHands.Grab(new Vector3(0, 0, 2), Quaternion.identity, 1, new Vector3(0, 0, 1),
                Quaternion.identity);
            hands.Move(new Vector3(0.5f, 0, 1), Quaternion.AngleAxis(90, Vector3.up), out Vector3 p, out Quaternion r,
                out float s);
            // A point one metre ahead of the hand ends up one metre to its right.
            Near(new Vector3(1.5f, 0, 1), p);
            Near(new Vector3(1, 0, 0), r * Vector3.forward);
            Assert.AreEqual(1, s, 1e-5);
        }

        [Test]
        public void HandDistanceScales()
        {
            TwoHands hands = TwoHands.Grab(new Vector3(0, 1, 2), Quaternion.identity, 1, new Vector3(-0.1f, 1, 0.5f),
                new Vector3(0.1f, 1, 0.5f));
            hands.Move(new Vector3(-0.2f, 1, 0.5f), new Vector3(0.2f, 1, 0.5f), out Vector3 p, out Quaternion r,
                out float s);
            Assert.AreEqual(2, s, 1e-5);
            Near(new Vector3(0, 1, 3.5f), p);
            Near(Vector3.forward, r * Vector3.forward);
        }

        [Test]
        public void HandDirectionTurns()
        {
            TwoHands hands = TwoHands.Grab(Vector3.zero, Quaternion.identity, 1, new Vector3(-0.2f, 0, 0),
                new Vector3(0.2f, 0, 0));
            hands.Move(new Vector3(0, 0, -0.2f), new Vector3(0, 0, 0.2f), out _, out Quaternion r, out float s);
            Near(new Vector3(0, 0, 1), r * Vector3.right);
            Assert.AreEqual(1, s, 1e-5);
        }

        [Test]
        public void ScaleIsBounded()
        {
            TwoHands hands = TwoHands.Grab(Vector3.zero, Quaternion.identity, 1, new Vector3(-0.001f, 0, 0),
                new Vector3(0.001f, 0, 0));
            hands.Move(new Vector3(-5, 0, 0), new Vector3(5, 0, 0), out _, out _, out float s);
            Assert.AreEqual(TwoHands.LargestScale, s, 1e-5);
        }
    }
}
