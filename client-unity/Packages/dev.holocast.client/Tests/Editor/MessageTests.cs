using Holocast.Native;
using NUnit.Framework;

namespace Holocast.Tests
{
    // Messages for the user: one sentence per state with a problem, otherwise none.
    public sealed class MessageTests
    {
        static readonly HolocastAddress Address = new HolocastAddress("moqt://pc:4443/demo", "");

        [TestCase(HolocastState.Connecting, "", "Connecting to the relay at pc:4443.")]
        [TestCase(HolocastState.Unreachable, "timed out",
            "The relay at pc:4443 does not answer; trying again: timed out.")]
        [TestCase(HolocastState.CertificateRefused, "its hash differs.",
            "The certificate of the relay at pc:4443 is not trusted: its hash differs.")]
        [TestCase(HolocastState.CertificateRefused, "the certificate of pc:4443 has expired",
            "The certificate of pc:4443 has expired.")]
        [TestCase(HolocastState.Unreachable, "is it running at pc:4443?", "Is it running at pc:4443?")]
        [TestCase(HolocastState.Refused, "", "The relay at pc:4443 does not serve “demo”.")]
        [TestCase(HolocastState.Lost, "reset by peer",
            "The connection to pc:4443 was lost; trying again: reset by peer.")]
        [TestCase(HolocastState.Waiting, "", "“demo” at pc:4443 has no publisher yet; waiting for one.")]
        [TestCase(HolocastState.Silent, "", "“demo” is published, but no frames arrive.")]
        [TestCase(HolocastState.Ended, "", "“demo” has no publisher any more; waiting for it to return.")]
        [TestCase(HolocastState.Failed, "it is so", "It is so.")]
        [TestCase(HolocastState.Live, "old error", "")]
        [TestCase(HolocastState.Listing, "", "")]
        [TestCase(HolocastState.Disconnected, "", "")]
        public void MessagePerState(HolocastState state, string detail, string sentence)
        {
            Assert.AreEqual(sentence, Messages.For(state, Address, detail, 0));
        }

        [Test]
        public void ListingRefused()
        {
            Assert.AreEqual("The relay at pc:4443 does not list its sessions: UNAUTHORIZED: a token is needed.",
                Messages.For(HolocastState.Refused, new HolocastAddress("moqt://pc:4443", ""),
                    "UNAUTHORIZED: a token is needed", 0));
        }

        [TestCase(0u, "", "The relay at pc:4443 has no sessions yet.")]
        [TestCase(Abi.StateSomeSessions, "The relay at pc:4443 lists only the sessions that the token allows.",
            "The relay at pc:4443 has no sessions that the token allows yet.")]
        public void ListingLimitedByToken(uint flags, string some, string none)
        {
            Assert.AreEqual(some, Messages.For(HolocastState.Listing, Address, "old error", flags));
            Assert.AreEqual(none, Messages.NoSessions(Address, flags));
        }

        [Test]
        public void UndecodableFrames()
        {
            Assert.AreEqual("No frame of camera 0 can be decoded: points: too many.",
                Messages.For(HolocastState.Live, Address, "no frame of camera 0 can be decoded: points: too many",
                    Abi.StateUndecodable));
        }

        [Test]
        public void NoCameras()
        {
            var native = new HcState { phase = HcPhase.Live, flags = Abi.StateNoCamera };
            Assert.AreEqual(HolocastState.Waiting, Messages.State(native, false));
            Assert.AreEqual(HolocastState.Waiting, Messages.State(native, true));
            Assert.AreEqual("Session “demo” has no cameras yet; waiting for one.",
                Messages.For(HolocastState.Waiting, Address, "", native.flags));
            native.flags |= Abi.StateSphere;
            Assert.AreEqual(HolocastState.Waiting, Messages.State(native, false));
            Assert.AreEqual("Session “demo” is 360° video, but this scene cannot show it: add a HolocastSphere.",
                Messages.For(HolocastState.Waiting, Address, "", native.flags));
            Assert.AreEqual(HolocastState.Live, Messages.State(native, true));
        }
    }
}
