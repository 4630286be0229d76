using System;
using System.Text;
using Holocast.Native;
using NUnit.Framework;

namespace Holocast.Tests
{
    public sealed class CatalogTests
    {
        static unsafe HcTrack Track(uint camera, string name, string quality, uint version)
        {
            var t = new HcTrack { size = (uint)sizeof(HcTrack), camera = camera, version = version, maxPoints = 100,
                descriptions = 4 };
            byte[] n = Encoding.UTF8.GetBytes(name), q = Encoding.UTF8.GetBytes(quality);
            for (int i = 0; i < n.Length; i++)
            {
                t.cameraName[i] = n[i];
            }
            for (int i = 0; i < q.Length; i++)
            {
                t.quality[i] = q[i];
            }
            return t;
        }

        [Test]
        public void GroupsTracksByCamera()
        {
            var catalog = new HolocastCatalog();
            catalog.Set(new[] { Track(0, "left", "full", 1), Track(0, "left", "low", 2),
                Track(3, "über", "full", 3) }, 3);
            Assert.AreEqual(2, catalog.Cameras.Count);
            Assert.AreEqual("left", catalog.Cameras[0].Name);
            Assert.AreEqual("über", catalog.Cameras[1].Name);
            Assert.AreEqual(3, catalog.Cameras[1].Number);
            Assert.AreEqual("low", catalog.Cameras[0].Track("low").Quality);
            Assert.AreEqual("full", catalog.Cameras[0].Track("unknown").Quality, "an unknown quality selects the best");
            Assert.AreEqual(2, catalog.Cameras[0].TrackOfVersion(2).Raw.version);
            Assert.AreEqual(null, catalog.Camera(1));
        }

        [Test]
        public void FollowsCatalogChanges()
        {
            var catalog = new HolocastCatalog();
            catalog.Set(new[] { Track(0, "a", "full", 1), Track(0, "a", "low", 2), Track(1, "b", "full", 3) }, 3);
            catalog.Set(new[] { Track(1, "c", "half", 4) }, 1);
            Assert.AreEqual(1, catalog.Cameras.Count);
            Assert.AreEqual(1, catalog.Cameras[0].Number);
            Assert.AreEqual("c", catalog.Cameras[0].Name);
            Assert.AreEqual(1, catalog.Cameras[0].Tracks.Count);
            Assert.AreEqual("half", catalog.Cameras[0].Tracks[0].Quality);
        }

        [Test]
        public void MovingCameraAllocatesNothing()
        {
            var catalog = new HolocastCatalog();
            var tracks = new[] { Track(0, "a", "full", 1), Track(1, "b", "full", 2) };
            catalog.Set(tracks, 2);
            catalog.Set(tracks, 2);
            catalog.Set(tracks, 2);
            long before = GC.GetAllocatedBytesForCurrentThread();
            for (int i = 0; i < 1000; i++)
            {
                unsafe
                {
                    tracks[0].translation[0] = i;
                }
                catalog.Set(tracks, 2);
            }
            long allocated = GC.GetAllocatedBytesForCurrentThread() - before;
            Assert.AreEqual(0, allocated);
        }
    }
}
