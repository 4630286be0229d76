using System;
using System.Linq;
using Holocast.Editor;
using NUnit.Framework;
using UnityEditor;
using UnityEngine.Stub;

namespace Holocast.Verify
{
    // Editor menus that need a platform's build module, with and without it.
    public sealed class EditorTests
    {
        [TestCase(true)]
        [TestCase(false)]
        public void SetUpNeedsTheModule(bool installed)
        {
            SetUp(HololensBuild.SetUp, "Universal Windows Platform", installed);
            Loop.Log.Clear();
            SetUp(AndroidSetup.SetUp, "Android Build Support", installed);
        }

        static void SetUp(Action menu, string module, bool installed)
        {
            BuildPipeline.Stub = installed;
            EditorUtility.Stub = null;
            try
            {
                menu();
            }
            finally
            {
                BuildPipeline.Stub = true;
            }
            Assert.AreEqual(installed, Loop.Log.Any(l => l.Contains("project set up")));
            Assert.AreEqual(installed, EditorUtility.Stub == null);
            if (!installed)
            {
                StringAssert.Contains(module, EditorUtility.Stub);
            }
        }
    }
}
