using System;
using System.Collections;
using System.IO;
using System.Linq;
using System.Text.RegularExpressions;
using Microsoft.MixedReality.OpenXR;
using Microsoft.MixedReality.OpenXR.ARFoundation;
using NUnit.Framework;
using Unity.XR.CoreUtils;
using UnityEngine;
using UnityEngine.Stub;
using UnityEngine.TestTools;
using UnityEngine.XR;
using UnityEngine.XR.ARFoundation;
using UnityEngine.XR.ARSubsystems;
using Object = UnityEngine.Object;

namespace Holocast.Verify
{
    // Components that need a headset's packages, with simulated managers.
    public sealed class HeadsetTests
    {
        GameObject hologram;
        HolocastSession session;
        Camera eyes;

        [SetUp]
        public void SetUp()
        {
            ARAnchorManager.Stub.running = true;
            ARAnchorManager.Loaded.Clear();
            AnchorManagerExtensions.Stub.Stub.Clear();
            var rig = new GameObject("Rig");
            rig.transform.position = new Vector3(5, 0, 7);
            eyes = new GameObject("Main Camera") { tag = "MainCamera" }.AddComponent<Camera>();
            eyes.transform.SetParent(rig.transform, false);
            hologram = new GameObject("Hologram");
            hologram.SetActive(false);
            session = hologram.AddComponent<HolocastSession>();
            session.Url = "ftp://relay/demo";
        }

        [TearDown]
        public void TearDown()
        {
            Array.Clear(InputDevices.Stub, 0, InputDevices.Stub.Length);
            XRDisplaySubsystem.Stub = 0;
        }

        // Unity's Hand Interaction Profile, which has axes and no buttons.
        [TestCase("PinchValue")]
        [TestCase("GraspValue")]
        [TestCase("PointerActivateValue")]
        public void HandInteractionProfile(string axis)
        {
            var hand = InputDevices.Stub[(int)XRNode.LeftHand] = new StubDevice();
            foreach ((float value, bool pressed) in new[] { (0.2f, false), (0.6f, false), (0.8f, true), (0.6f, true),
                (0.3f, false), (0.6f, false) })
            {
                hand.Axes[axis] = value;
                Assert.AreEqual(pressed, HandInput.Pressed(XRNode.LeftHand), axis + " " + value);
            }
            Assert.IsFalse(HandInput.Pressed(XRNode.RightHand));
        }

        // Devices report in tracking space, which the rig moves and turns.
        [Test]
        public void HandPosesAreInTheWorld()
        {
            Transform rig = eyes.transform.parent;
            rig.rotation = Quaternion.AngleAxis(90, Vector3.up);
            InputDevices.Stub[(int)XRNode.RightHand] = new StubDevice
            {
                Position = new Vector3(0, 1, 1), Aim = new Ray(new Vector3(0, 1, 0), Vector3.forward),
            };
            Assert.IsTrue(HandInput.TryGet(XRNode.RightHand, eyes.transform, out Hand hand));
            Near(new Vector3(6, 1, 7), hand.Position);
            Near(Vector3.right, hand.Rotation * Vector3.forward);
            Near(new Vector3(5, 1, 7), hand.Pointer.origin);
            Near(Vector3.right, hand.Pointer.direction);
            Assert.IsFalse(HandInput.TryGet(XRNode.LeftHand, eyes.transform, out hand));
        }

        static void Near(Vector3 wanted, Vector3 got)
        {
            Assert.IsTrue((got - wanted).magnitude < 1e-4f, got.x + ", " + got.y + ", " + got.z);
        }

        [TestCase(72f)]
        [TestCase(90f)]
        public void HeadsetsRefreshRate(float rate)
        {
            XRDisplaySubsystem.Stub = rate;
            Assert.AreEqual(rate, DisplayRate.Current(), 1e-3);
        }

        static ARMarker Marker(ulong id, string text, float lastSeen)
        {
            var m = new GameObject("Marker").AddComponent<ARMarker>();
            m.trackableId = new TrackableId(id, 0);
            m.Stub = text;
            m.lastSeenTime = lastSeen;
            return m;
        }

        static readonly ARMarker[] None = { };

        ARMarkerManager Pair()
        {
            hologram.AddComponent<HolocastPairing>();
            hologram.SetActive(true);
            session.Disconnect();
            var manager = Object.FindAnyObjectByType<ARMarkerManager>();
            manager.subsystem.running = true;
            return manager;
        }

        string[] Joined() => hologram.GetComponent<HolocastBrowser>().Addresses.Select(a => a.Session).ToArray();

        [UnityTest]
        public IEnumerator OldQrCodeIsSkippedUntilItIsSeen()
        {
            yield return null;
            ARMarkerManager manager = Pair();
            ARMarker old = Marker(1, "moqt://127.0.0.1:9/old", Time.realtimeSinceStartup - 60);
            manager.Report(new[] { old }, None);
            Assert.AreEqual(0, Joined().Length, "joined by a code that the headset remembers");
            yield return null;
            old.lastSeenTime = Time.realtimeSinceStartup;
            manager.Report(None, new[] { old });
            Assert.AreEqual("old", string.Join(" ", Joined()));
        }

        [UnityTest]
        public IEnumerator QrCodeInViewJoinsOnce()
        {
            ARMarkerManager manager = Pair();
            ARMarker fresh = Marker(2, "moqt://127.0.0.1:9/fresh", Time.realtimeSinceStartup);
            manager.Report(new[] { fresh }, None);
            Assert.AreEqual("fresh", string.Join(" ", Joined()));
            session.Disconnect();
            for (int i = 0; i < 60 * 10; i++)
            {
                fresh.lastSeenTime = Time.realtimeSinceStartup;
                manager.Report(None, new[] { fresh });
                yield return null;
            }
            Assert.AreEqual(HolocastState.Disconnected, session.State, "a code that stays in view");
            for (int i = 0; i < 60 * 6; i++)
            {
                yield return null;
            }
            fresh.lastSeenTime = Time.realtimeSinceStartup;
            manager.Report(None, new[] { fresh });
            Assert.IsTrue(session.State != HolocastState.Disconnected, "a code that comes into view again");
        }

        [UnityTest]
        public IEnumerator OtherQrCodesAreIgnored()
        {
            ARMarkerManager manager = Pair();
            float now = Time.realtimeSinceStartup;
            manager.Report(new[] { Marker(3, "WIFI:S:guest;;", now), Marker(4, null, now),
                Marker(5, "moqt://127.0.0.1:9/third", now) }, None);
            Assert.AreEqual("third", string.Join(" ", Joined()));
            yield return null;
        }

        // The end-to-end tests cover the relay's answer.
        [UnityTest]
        public IEnumerator PairingCodeAsksTheRelay()
        {
            ARMarkerManager manager = Pair();
            manager.Report(new[] { Marker(6, "http://127.0.0.1:9/pair/ABCD2345#AAECAwQFBgcICQoLDA0ODw",
                Time.realtimeSinceStartup) }, None);
            StringAssert.Contains("Asking the relay", session.Message);
            Assert.AreEqual(0, Joined().Length);
            hologram.GetComponent<HolocastBrowser>().JoinText("moqt://127.0.0.1:9/other");
            session.Disconnect();
            Assert.AreEqual("", session.Message);
            yield return null;
        }

        [UnityTest]
        public IEnumerator SceneGetsTheManagersItLacks()
        {
            hologram.AddComponent<HolocastPairing>();
            hologram.AddComponent<HolocastWorldAnchor>();
            hologram.SetActive(true);
            yield return null;
            Assert.AreEqual(1, Object.FindObjectsByType<ARSession>(FindObjectsSortMode.None).Length);
            XROrigin[] origins = Object.FindObjectsByType<XROrigin>(FindObjectsSortMode.None);
            Assert.AreEqual(1, origins.Length);
            Assert.AreEqual(eyes, origins[0].Camera);
            Assert.IsTrue((origins[0].transform.position - new Vector3(5, 0, 7)).magnitude < 1e-5f,
                "the origin is not in tracking space");
            Assert.IsTrue(origins[0].GetComponent<ARAnchorManager>() != null
                && origins[0].GetComponent<ARMarkerManager>() != null, "managers");
            Assert.IsFalse(Loop.Log.Any(l => l.Contains("XR Origin")), string.Join("; ", Loop.Log));
        }

        [UnityTest]
        public IEnumerator PassthroughClearsTheCamera()
        {
            eyes.clearFlags = CameraClearFlags.Skybox;
            eyes.backgroundColor = Color.white;
            var passthrough = eyes.gameObject.AddComponent<HolocastPassthrough>();
            yield return null;
            var manager = eyes.GetComponent<ARCameraManager>();
            Assert.IsTrue(manager != null && manager.enabled, "AR Foundation's camera");
            Assert.AreEqual(1, Object.FindObjectsByType<ARSession>(FindObjectsSortMode.None).Length);
            Assert.AreEqual(CameraClearFlags.SolidColor, eyes.clearFlags);
            Assert.AreEqual(0f, eyes.backgroundColor.a);
            passthrough.enabled = false;
            yield return null;
            Assert.IsFalse(manager.enabled);
            Assert.AreEqual(CameraClearFlags.Skybox, eyes.clearFlags);
            Assert.AreEqual(Color.white, eyes.backgroundColor);
        }

        [UnityTest]
        public IEnumerator RigKeepsItsOrigin()
        {
            var rig = new GameObject("MRTK XR Rig");
            rig.SetActive(false);
            rig.AddComponent<XROrigin>().CameraFloorOffsetObject = rig;
            rig.SetActive(true);
            hologram.AddComponent<HolocastPairing>();
            hologram.SetActive(true);
            yield return null;
            Assert.AreEqual(1, Object.FindObjectsByType<XROrigin>(FindObjectsSortMode.None).Length);
            Assert.IsTrue(rig.GetComponent<ARMarkerManager>() != null, "the manager is not on the rig");
        }

        // The frame of the sample Self-test, whole and damaged.
        [Test]
        public void SelfTestTimesAFrame()
        {
            byte[] frame = File.ReadAllBytes(Path.Combine(Lab.Root,
                "client-unity/Packages/dev.holocast.client/Samples~/SelfTest/Frame.bytes"));
            string text = HolocastSelfTest.Decoding(frame);
            Assert.IsTrue(Regex.IsMatch(text, @"^\nDecoding 16810 points: \d+\.\d\d ms$"), text);
            Array.Resize(ref frame, frame.Length / 2);
            text = HolocastSelfTest.Decoding(frame);
            Assert.IsTrue(Regex.IsMatch(text, @"^\nDecoding: .*[a-z]"), text);
        }

        // Managers exist, but OpenXR offers neither anchors nor markers.
        [UnityTest]
        public IEnumerator MissingFeatureIsNamed()
        {
            ARAnchorManager.Stub.running = false;
            hologram.AddComponent<HolocastPairing>();
            hologram.AddComponent<HolocastWorldAnchor>();
            hologram.SetActive(true);
            session.Disconnect();
            yield return null;
            Assert.AreEqual("", session.Message);
            for (int i = 0; i < 60 * 11; i++)
            {
                yield return null;
            }
            StringAssert.Contains("QR codes are not read: enable", session.Message);
            StringAssert.Contains("not anchored to the room: enable", session.Message);
            ARAnchorManager.Stub.running = true;
            Object.FindAnyObjectByType<ARMarkerManager>().subsystem.running = true;
            yield return null;
            Assert.AreEqual("", session.Message);
        }

        [UnityTest]
        public IEnumerator HologramFollowsItsAnchor()
        {
            var world = hologram.AddComponent<HolocastWorldAnchor>();
            hologram.SetActive(true);
            hologram.transform.position = new Vector3(1, 1, 1);
            world.Save(hologram.transform);
            yield return null;
            yield return null;
            ARAnchor anchor = Object.FindAnyObjectByType<ARAnchor>();
            anchor.trackingState = TrackingState.Tracking;
            yield return null;
            yield return null;
            Assert.IsTrue(AnchorManagerExtensions.Stub.Stub.ContainsKey(world.Key), "the anchor is not stored");
            anchor.transform.position = new Vector3(1.1f, 1, 1);
            yield return null;
            yield return null;
            Assert.AreEqual(1.1, hologram.transform.position.x, 1e-4, "after the headset moved the anchor");

            hologram.transform.position = new Vector3(3, 1, 1); // a hand moves it
            yield return null;
            yield return null;
            Assert.AreEqual(3, hologram.transform.position.x, 1e-4, "while a hand moves it");
            world.Save(hologram.transform);
            yield return null;
            yield return null;
            Assert.AreEqual(3, hologram.transform.position.x, 1e-4, "after it was saved");
        }

        [UnityTest]
        public IEnumerator RestoredHologramFollowsItsAnchor()
        {
            var anchor = new GameObject("Anchor").AddComponent<ARAnchor>();
            anchor.trackingState = TrackingState.Tracking;
            anchor.transform.position = new Vector3(0, 0, 2);
            ARAnchorManager.Loaded[anchor.trackableId] = anchor;
            var world = hologram.AddComponent<HolocastWorldAnchor>();
            AnchorManagerExtensions.Stub.Stub[world.Key] = anchor.trackableId;
            hologram.SetActive(true);
            world.Restore(hologram.transform);
            yield return null;
            yield return null;
            Assert.AreEqual(2, hologram.transform.position.z, 1e-4, "restored");
            anchor.transform.position = new Vector3(0, 0, 2.5f);
            yield return null;
            yield return null;
            Assert.AreEqual(2.5, hologram.transform.position.z, 1e-4, "followed");
        }
    }
}
