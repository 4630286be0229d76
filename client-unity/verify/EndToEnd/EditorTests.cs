using System.Linq;
using Holocast.Editor;
using NUnit.Framework;
using UnityEditor;
using UnityEngine.Stub;

namespace Holocast.Verify
{
    // Editor menus, in an editor with and without a module.
    public sealed class EditorTests
    {
        [TestCase(true)]
        [TestCase(false)]
        public void SetUpNeedsTheModule(bool installed)
        {
            BuildPipeline.Stub = installed;
            EditorUtility.Stub = null;
            try
            {
                HololensBuild.SetUp();
            }
            finally
            {
                BuildPipeline.Stub = true;
            }
            Assert.AreEqual(installed, Loop.Log.Any(l => l.Contains("project set up")));
            Assert.AreEqual(installed, EditorUtility.Stub == null);
            if (!installed)
            {
                StringAssert.Contains("Universal Windows Platform", EditorUtility.Stub);
            }
        }
    }
}
