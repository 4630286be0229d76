using NUnit.Framework;

namespace Holocast.Tests
{
    public sealed class TextBufferTests
    {
        [TestCase(0L, "0")]
        [TestCase(7L, "7")]
        [TestCase(999L, "999")]
        [TestCase(1000L, "1,000")]
        [TestCase(-238112L, "-238,112")]
        [TestCase(1234567890L, "1,234,567,890")]
        public void FormatsIntegers(long value, string text)
        {
            Assert.AreEqual(text, new TextBuffer(40).Add(value).ToString());
        }

        [TestCase(0.0, "0.0")]
        [TestCase(29.97, "30.0")]
        [TestCase(41.25, "41.3")]
        [TestCase(-0.04, "0.0")]
        [TestCase(-1.5, "-1.5")]
        [TestCase(12345.0, "12,345.0")]
        [TestCase(double.NaN, "–")]
        [TestCase(double.PositiveInfinity, "–")]
        public void FormatsDecimals(double value, string text)
        {
            Assert.AreEqual(text, new TextBuffer(40).Add(value).ToString());
        }

        [Test]
        public void DropsTextBeyondCapacity()
        {
            var t = new TextBuffer(4);
            t.Add("ab").Add(12345L);
            Assert.AreEqual("ab12", t.ToString());
            t.Clear();
            Assert.AreEqual("x", t.Add('x').ToString());
        }
    }
}
