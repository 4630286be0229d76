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

        // The first start of an app whose user joins by menu or QR code.
        [UnityTest]
        public IEnumerator NoAddressIsNoError()
        {
            var session = hologram.GetComponent<HolocastSession>();
            session.Url = "";
            hologram.SetActive(true);
            yield return null;
            Assert.AreEqual(HolocastState.Disconnected, session.State);
            Assert.AreEqual("", session.Message);
        }

        [UnityTest]
        public IEnumerator StateChangedEvent()
        {
            var session = hologram.GetComponent<HolocastSession>();
            session.Url = "two words";
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
        public IEnumerator SelfTestShowsTheDevice()
        {
            var session = hologram.GetComponent<HolocastSession>();
            session.Url = "";
            hologram.SetActive(true);
            var hud = new GameObject("Hud").AddComponent<HolocastHud>();
            var test = hud.gameObject.AddComponent<HolocastSelfTest>();
            for (int i = 0; i < 40; i++)
            {
                yield return null;
            }
            StringAssert.Contains("Library: ", hud.Text);
            StringAssert.Contains("Unity " + Application.unityVersion, hud.Text);
            StringAssert.Contains("Session: Disconnected, UDP: not tried", hud.Text);
            test.enabled = false;
            for (int i = 0; i < 40; i++)
            {
                yield return null;
            }
            Assert.IsFalse(hud.Text.Contains("Library"), hud.Text);
            Object.DestroyImmediate(hud.gameObject);
        }

        [TestCase(HolocastState.Connecting, "waiting for an answer")]
        [TestCase(HolocastState.Unreachable, "no answer")]
        [TestCase(HolocastState.CertificateRefused, "answered")]
        [TestCase(HolocastState.Live, "answered")]
        public void SelfTestTellsUdp(HolocastState state, string udp)
        {
            Assert.AreEqual(udp, HolocastSelfTest.Udp(state));
        }

        // Tokens are credentials, so they are not stored in clear text.
        [UnityTest]
        public IEnumerator TokensAreNotInPlayerPrefs()
        {
            const string key = "Holocast.Addresses";
            string before = PlayerPrefs.GetString(key, "");
            PlayerPrefs.SetString(key, "moqt://relay.example:4443/old?token=secret1");
            try
            {
                hologram.GetComponent<HolocastSession>().Url = "";
                var browser = hologram.AddComponent<HolocastBrowser>();
                browser.Session = null;
                hologram.SetActive(true);
                yield return null;
                Assert.AreEqual("moqt://relay.example:4443/old", PlayerPrefs.GetString(key, ""), "stored earlier");
                hologram.SetActive(false);
                browser.Session = null;
                HolocastAddress.TryParse("moqt://relay.example:4443/demo?token=secret2", out HolocastAddress a);
                browser.Join(a);
                Assert.AreEqual("moqt://relay.example:4443/demo?token=secret2", browser.Addresses[0].Url, "in this run");
                Assert.IsFalse(PlayerPrefs.GetString(key, "").Contains("secret"), PlayerPrefs.GetString(key, ""));
                browser.Join(a.WithToken("?token=secret3"));
                Assert.AreEqual(2, browser.Addresses.Count, "one entry for both tokens");
                Assert.AreEqual("moqt://relay.example:4443/demo?token=secret3", browser.Addresses[0].Url);
            }
            finally
            {
                PlayerPrefs.SetString(key, before);
            }
        }

        // The menu is open while no session is live, and stays in front of the user.
        [UnityTest]
        public IEnumerator MenuFollowsTheUser()
        {
            hologram.GetComponent<HolocastSession>().Url = "";
            hologram.AddComponent<HolocastBrowser>();
            hologram.SetActive(true);
            var menu = new GameObject("Menu").AddComponent<HolocastMenu>();
            yield return null;
            yield return null;
            StringAssert.Contains("Type an address", string.Join(", ", menu.Labels));
            Vector3 placed = menu.transform.position;
            eyes.transform.rotation = Quaternion.AngleAxis(40, Vector3.up);
            yield return null;
            Assert.IsTrue((menu.transform.position - placed).magnitude < 1e-4f, "it moved while in view");
            eyes.transform.rotation = Quaternion.AngleAxis(170, Vector3.up);
            yield return null;
            yield return null;
            Assert.IsTrue(InFront(menu), "behind a user who turned");
            eyes.transform.position = new Vector3(0, 0, 4);
            yield return null;
            yield return null;
            Assert.IsTrue(InFront(menu), "behind a user who walked");
            Object.DestroyImmediate(menu.gameObject);
        }

        bool InFront(HolocastMenu menu)
        {
            Vector3 there = menu.transform.position - eyes.transform.position;
            return there.magnitude < 2 && Vector3.Dot(there.normalized, eyes.transform.forward) > 0.8f;
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
