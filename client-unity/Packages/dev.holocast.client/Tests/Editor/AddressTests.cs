using NUnit.Framework;

namespace Holocast.Tests
{
    public sealed class AddressTests
    {
        const string Hash = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

        [TestCase("http://192.168.1.7:4443/pair/ABCD2345#AAECAwQFBgcICQoLDA0ODw", true)]
        [TestCase(" http://[::1]:4443/pair/A#k\n", true)]
        [TestCase("http://relay:4443/pair/ABCD2345", false)]
        [TestCase("http://relay:4443/#/pair/x", false)]
        [TestCase("https://relay/pair/A#k", false)]
        [TestCase("moqt://relay/pair/A#k", false)]
        [TestCase("", false)]
        [TestCase(null, false)]
        public void PairingLinks(string text, bool pairing)
        {
            Assert.AreEqual(pairing, HolocastAddress.IsPairingLink(text));
        }

        [TestCase("moqt://relay.example:4443/demo", "moqt://relay.example:4443/demo", "")]
        [TestCase("  relay.example:4443/demo ", "moqt://relay.example:4443/demo", "")]
        [TestCase("192.168.1.7:4443", "moqt://192.168.1.7:4443", "")]
        [TestCase("[2001:db8::1]:4443/a/b/", "moqt://[2001:db8::1]:4443/a/b", "")]
        [TestCase("https://relay.example/studio", "moqt://relay.example/studio", "")]
        [TestCase("moqt://relay.example:4443/demo#" + Hash, "moqt://relay.example:4443/demo", Hash)]
        [TestCase("http://pc:4443/?relay=https://pc:4443&session=demo", "moqt://pc:4443/demo", "")]
        [TestCase("http://pc:8080/?session=demo&certificate=" + Hash, "moqt://pc:4443/demo", Hash)]
        [TestCase("https://pc/view/?session=two%20words", "moqt://pc:4443/two words", "")]
        [TestCase("http://[::1]:80/?session=demo", "moqt://[::1]:4443/demo", "")]
        [TestCase("moqt://relay.example/demo?token=a.b.c", "moqt://relay.example/demo?token=a.b.c", "")]
        [TestCase("moqt://relay.example/demo?token=a#e2e=1.k", "moqt://relay.example/demo?token=a#e2e=1.k", "")]
        [TestCase("http://pc:4443/?session=demo#token=a.b.c&e2e=1.k", "moqt://pc:4443/demo?token=a.b.c#e2e=1.k", "")]
        [TestCase("http://pc:4443/?session=demo#e2e=1.k", "moqt://pc:4443/demo#e2e=1.k", "")]
        [TestCase("http://pc:4443/?relay=https://pc:4443&session=demo#token=a.b.c", "moqt://pc:4443/demo?token=a.b.c",
            "")]
        public void ParsesAddresses(string text, string url, string hash)
        {
            Assert.IsTrue(HolocastAddress.TryParse(text, out HolocastAddress a), text);
            Assert.AreEqual(url, a.Url);
            Assert.AreEqual(hash, a.CertificateHash);
            Assert.IsTrue(HolocastAddress.TryParse(a.ToString(), out HolocastAddress again) && again.Equals(a));
        }

        [TestCase("")]
        [TestCase(null)]
        [TestCase("moqt://")]
        [TestCase("ftp://relay/demo")]
        [TestCase("two words")]
        [TestCase("relay/demo#abc")]
        [TestCase("ftp://pc/?session=demo")]
        public void RejectsInvalidAddresses(string text)
        {
            Assert.IsFalse(HolocastAddress.TryParse(text, out _), text);
        }

        [TestCase("moqt://relay.example:4443/demo?token=a.b.c", "demo")]
        [TestCase("moqt://relay.example:4443?token=a.b.c", "")]
        public void KeepsTheToken(string text, string session)
        {
            Assert.IsTrue(HolocastAddress.TryParse(text, out HolocastAddress a), text);
            Assert.AreEqual("relay.example:4443", a.Host);
            Assert.AreEqual(session, a.Session);
            Assert.AreEqual("moqt://relay.example:4443/other?token=a.b.c", a.WithSession("other").Url);
        }

        [Test]
        public void HostAndSession()
        {
            var a = new HolocastAddress("moqt://pc:4443/a/b", Hash);
            Assert.AreEqual("pc:4443", a.Host);
            Assert.AreEqual("a/b", a.Session);
            Assert.AreEqual("moqt://pc:4443", a.WithSession("").Url);
            Assert.AreEqual("moqt://pc:4443/c#" + Hash, a.WithSession("c").ToString());
        }
    }
}
