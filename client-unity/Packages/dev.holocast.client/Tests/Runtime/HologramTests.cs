using System.Collections;
using NUnit.Framework;
using UnityEngine;
using UnityEngine.TestTools;

namespace Holocast.Tests
{
    // Components in a scene without a relay.
    public sealed class HologramTests
    {
        GameObject hologram;
        GameObject eyes;

        [SetUp]
        public void SetUp()
        {
            eyes = new GameObject("Main Camera") { tag = "MainCamera" };
            eyes.AddComponent<Camera>();
            hologram = new GameObject("Hologram");
            hologram.SetActive(false);
            hologram.AddComponent<HolocastSession>();
            hologram.AddComponent<HolocastPoints>();
            hologram.AddComponent<HolocastPlacement>();
        }

        [TearDown]
        public void TearDown()
        {
            Object.DestroyImmediate(hologram);
            Object.DestroyImmediate(eyes);
        }

        [UnityTest]
        public IEnumerator InvalidAddressMessage()
        {
            var session = hologram.GetComponent<HolocastSession>();
            session.Url = "ftp://relay/demo";
            hologram.SetActive(true);
            yield return null;
            Assert.AreEqual(HolocastState.Failed, session.State);
            Assert.AreEqual("“ftp://relay/demo” is not a session address: use the form moqt://host:4443/demo.",
                session.Message);
        }

        [UnityTest]
        public IEnumerator StateChangedEvent()
        {
            var session = hologram.GetComponent<HolocastSession>();
            session.Url = "";
            int told = 0;
            session.StateChanged.AddListener(_ => told++);
            hologram.SetActive(true);
            yield return null;
            Assert.AreEqual(1, told, "failed");
            session.Disconnect();
            Assert.AreEqual(2, told, "disconnected");
            Assert.AreEqual(HolocastState.Disconnected, session.State);
            Assert.AreEqual("", session.Message);
        }

        [UnityTest]
        public IEnumerator AnchorRestoresThePlace()
        {
            hologram.GetComponent<HolocastSession>().Url = "";
            var anchor = hologram.AddComponent<HolocastAnchor>();
            anchor.Key = "Holocast.Test";
            hologram.SetActive(true);
            hologram.transform.SetPositionAndRotation(new Vector3(1, 2, 3), Quaternion.AngleAxis(30, Vector3.up));
            hologram.transform.localScale = Vector3.one * 0.5f;
            hologram.GetComponent<HolocastPlacement>().Save();
            yield return null;
            hologram.transform.SetPositionAndRotation(Vector3.zero, Quaternion.identity);
            hologram.transform.localScale = Vector3.one;
            Assert.IsTrue(anchor.Restore(hologram.transform));
            Assert.IsTrue((hologram.transform.position - new Vector3(1, 2, 3)).magnitude < 1e-4f);
            Assert.AreEqual(0.5, hologram.transform.localScale.x, 1e-5);
            anchor.Clear();
            Assert.IsFalse(anchor.Restore(hologram.transform));
        }

        [UnityTest]
        public IEnumerator HudShowsTheMessage()
        {
            var session = hologram.GetComponent<HolocastSession>();
            session.Url = "two words";
            hologram.SetActive(true);
            var hud = new GameObject("Hud").AddComponent<HolocastHud>();
            yield return null;
            yield return null;
            StringAssert.Contains("“two words” is not a session address", hud.Text);
            Object.DestroyImmediate(hud.gameObject);
        }
    }
}
