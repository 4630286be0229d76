using Holocast.Native;
using NUnit.Framework;
using UnityEngine;

namespace Holocast.Tests
{
    // Conversion from camera to Unity coordinates.
    public sealed class StudioTests
    {
        static unsafe HcTrack Track(double[] r, double[] t)
        {
            var track = new HcTrack();
            for (int i = 0; i < 9; i++)
            {
                track.rotation[i] = r[i];
            }
            for (int i = 0; i < 3; i++)
            {
                track.translation[i] = t[i];
            }
            return track;
        }

        static Vector3 Place(in HcTrack track, bool yUp, Vector3 point)
        {
            Studio.Pose(track, yUp, out Vector3 p, out Quaternion q, out Vector3 s);
            return p + q * new Vector3(point.x * s.x, point.y * s.y, point.z * s.z);
        }

        static void Near(Vector3 want, Vector3 got)
        {
            Assert.IsTrue((want - got).magnitude < 1e-3f, "expected " + want + ", was " + got);
        }

        static readonly double[] Identity = { 1, 0, 0, 0, 1, 0, 0, 0, 1 };

        [Test]
        public void FlipsTheYAxis()
        {
            HcTrack track = Track(Identity, new double[] { 100, 200, 300 });
            // One metre to the right, one down, two ahead of the camera.
            Near(new Vector3(1.1f, -1.2f, 2.3f), Place(track, false, new Vector3(1000, 1000, 2000)));
        }

        // For any rotation, the Unity position is the mirrored studio position.
        [TestCase(0.3, -0.4, 0.7)]
        [TestCase(3.1, 0.1, -2.0)]
        [TestCase(-1.5707, 1.2, 0.0)]
        [TestCase(2.0, -3.0, 1.0)]
        public void AppliesTheRotation(double a, double b, double c)
        {
            double sa = System.Math.Sin(a), ca = System.Math.Cos(a), sb = System.Math.Sin(b), cb = System.Math.Cos(b),
                sc = System.Math.Sin(c), cc = System.Math.Cos(c);
            double[] r =
            {
                ca * cb, ca * sb * sc - sa * cc, ca * sb * cc + sa * sc,
                sa * cb, sa * sb * sc + ca * cc, sa * sb * cc - ca * sc,
                -sb, cb * sc, cb * cc,
            };
            double[] t = { 500, -800, 1200 };
            HcTrack track = Track(r, t);
            var p = new Vector3(300, -200, 1500);
            var studio = new Vector3(
                (float)(r[0] * p.x + r[1] * p.y + r[2] * p.z + t[0]),
                (float)(r[3] * p.x + r[4] * p.y + r[5] * p.z + t[1]),
                (float)(r[6] * p.x + r[7] * p.y + r[8] * p.z + t[2]));
            Near(new Vector3(studio.x, -studio.y, studio.z) * 0.001f, Place(track, false, p));
            Near(new Vector3(studio.x, studio.y, -studio.z) * 0.001f, Place(track, true, p));
        }

        // A point has the same place before the eye in Unity and through the view in the studio.
        [TestCase(false)]
        [TestCase(true)]
        public unsafe void ViewOfAnEye(bool yUp)
        {
            var eye = new Vector3(0.4f, 1.5f, -2);
            Quaternion turned = Quaternion.LookRotation(new Vector3(1, -0.5f, 2), Vector3.up);
            HcView v = Studio.View(eye, turned, yUp);
            double[] studio = { 300, -200, 1500 };
            Vector3 want = Quaternion.Inverse(turned) * (Studio.Place(studio[0], studio[1], studio[2], yUp) - eye);
            var got = new double[3];
            for (int i = 0; i < 3; i++)
            {
                got[i] = v.translation[i];
                for (int j = 0; j < 3; j++)
                {
                    got[i] += v.rotation[3 * i + j] * studio[j];
                }
            }
            Near(want, new Vector3((float)got[0], (float)-got[1], (float)got[2]) * 0.001f);
        }

        [Test]
        public void DetectsTheUpAxis()
        {
            var catalog = new HolocastCatalog();
            catalog.Set(new[] { Track(Identity, new double[3]) }, 1);
            Assert.IsFalse(catalog.StudioYUp);
            catalog.Set(new[] { Track(new double[] { 1, 0, 0, 0, -1, 0, 0, 0, -1 }, new double[3]) }, 1);
            Assert.IsTrue(catalog.StudioYUp);
        }
    }
}
