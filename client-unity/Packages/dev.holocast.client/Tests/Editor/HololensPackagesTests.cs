using System.Text.RegularExpressions;
using Holocast.Editor;
using NUnit.Framework;

namespace Holocast.Tests
{
    // The project's manifest after Holocast › HoloLens 2 › Add HoloLens Packages.
    public sealed class HololensPackagesTests
    {
        const string Registry = "https://pkgs.dev.azure.com/aipmr/MixedReality-Unity-Packages/_packaging/"
            + "Unity-packages/npm/registry/";

        [TestCase("{}")]
        [TestCase("{\"dependencies\":{\"com.unity.xr.openxr\":\"1.10.0\"},\"testables\":[\"a\"]}")]
        [TestCase("{\r\n  \"scopedRegistries\": []\r\n}")]
        [TestCase("{\"scopedRegistries\":[{\"name\":\"OpenUPM\",\"url\":\"https://package.openupm.com\","
            + "\"scopes\":[\"org.mixedrealitytoolkit\"]}],\"dependencies\":{}}")]
        [TestCase("{\"scopedRegistries\":[{\"name\":\"M\",\"url\":\"" + Registry
            + "\",\"scopes\":[\"com.microsoft.spatialaudio\"]}]}")]
        [TestCase("{\"scopedRegistries\":[{\"name\":\"Mirror\",\"url\":\"https://mirror.example\","
            + "\"scopes\":[\"com.microsoft.mixedreality\"]}]}")]
        public void Added(string manifest)
        {
            string with = HololensPackages.Add(manifest);
            Assert.AreEqual(1, Regex.Matches(with, "\"com.microsoft.mixedreality\"").Count);
            StringAssert.Contains("\"com.microsoft.mixedreality.openxr\": \"1.11.2\"", with);
            Assert.AreEqual(manifest.Contains("Mirror") ? 0 : 1, Regex.Matches(with, Registry).Count);
            foreach (Match text in Regex.Matches(manifest, "\"[^\"]+\""))
            {
                StringAssert.Contains(text.Value, with);
            }
            Assert.AreEqual(with, HololensPackages.Add(with));
        }

        [Test]
        public void ChosenVersionStays()
        {
            StringAssert.Contains("\"com.microsoft.mixedreality.openxr\": \"1.9.0\"",
                HololensPackages.Add("{\"dependencies\":{\"com.microsoft.mixedreality.openxr\":\"1.9.0\"}}"));
        }

        [TestCase("")]
        [TestCase("[]")]
        [TestCase("{\"dependencies\":")]
        public void NoManifest(string manifest)
        {
            try
            {
                HololensPackages.Add(manifest);
            }
            catch (Newtonsoft.Json.JsonException)
            {
                return;
            }
            Assert.IsTrue(false, "accepted " + manifest);
        }
    }
}
