using NUnit.Framework;

namespace Holocast.Tests
{
    public sealed class PointBudgetTests
    {
        static void Run(PointBudget budget, ref double now, double seconds, double pictures, int worst)
        {
            for (double end = now + seconds; now < end; now += 0.1)
            {
                budget.Update(now, pictures, 60, worst);
            }
        }

        // A display of any rate that shows all its pictures keeps all points.
        [TestCase(30, 1, -1, false)]
        [TestCase(50, 1, -1, false)]
        [TestCase(60, 2, -1, false)]
        [TestCase(60, 0, 30, false)]
        [TestCase(60, 0, -1, true)] // 30 on a phone
        [TestCase(72, 1, -1, false)]
        [TestCase(90, 1, -1, false)]
        [TestCase(120, 1, -1, false)]
        public void KeepsAllPointsAtTheRateOfTheDisplay(int refresh, int vSyncs, int target, bool mobile)
        {
            double rate = DisplayRate.Of(refresh, vSyncs, target, mobile);
            double shown = mobile ? 30 : vSyncs > 0 ? refresh / vSyncs : target;
            var budget = new PointBudget();
            for (double now = 0; now < 20; now += 0.1)
            {
                budget.Update(now, shown, rate, 3);
            }
            Assert.AreEqual(0, budget.Level);
            for (double now = 20; now < 30; now += 0.1)
            {
                budget.Update(now, 0.7 * shown, rate, 3);
            }
            Assert.AreEqual(3, budget.Level, "while the rate is missed");
        }

        [TestCase(0.0, 1, -1, false, 0.0)]
        [TestCase(double.NaN, 1, -1, false, 0.0)]
        [TestCase(double.NaN, 0, 50, false, 50.0)]
        [TestCase(60.0, 0, 90, false, 60.0)]
        [TestCase(60.0, 1, 90, false, 60.0)]
        [TestCase(60.0, 1, -1, true, 30.0)]
        [TestCase(120.0, 1, 72, true, 72.0)]
        public void DisplayRateOf(double refresh, int vSyncs, int target, bool mobile, double rate)
        {
            Assert.AreEqual(rate, DisplayRate.Of(refresh, vSyncs, target, mobile), 1e-9);
        }

        // Points of a camera and of the other cameras, MaxPoints, and the expected step.
        [TestCase(100000u, 0, 100000, 1u)]
        [TestCase(100001u, 0, 100000, 2u)]
        [TestCase(25000u, 75000, 100000, 1u)]
        [TestCase(100000u, 300000, 100000, 4u)]
        [TestCase(1000u, 399000, 100000, 4u)]
        [TestCase(0u, 0, 1, 1u)]
        [TestCase(16000000u, 2000000000, 1, 2016000000u)]
        public void CamerasShareMaxPoints(uint points, int others, int maxPoints, uint step)
        {
            Assert.AreEqual(step, CameraPoints.Step(points, others, maxPoints));
        }

        // Layouts A, B, C and W are 1 to 4.
        [TestCase(HolocastLook.Surface, 1u, 1u, true)]
        [TestCase(HolocastLook.Surface, 4u, 1u, true)]
        [TestCase(HolocastLook.Surface, 1u, 2u, false)] // thinned
        [TestCase(HolocastLook.Surface, 2u, 1u, false)]
        [TestCase(HolocastLook.Surface, 3u, 1u, false)]
        [TestCase(HolocastLook.Points, 1u, 1u, false)]
        [TestCase(HolocastLook.Points, 4u, 1u, false)]
        public void CompleteGridsAreSurfaces(HolocastLook look, uint layout, uint step, bool surface)
        {
            Assert.AreEqual(surface, Looks.IsSurface(look, layout, step));
        }

        [Test]
        public void TheFirstLevelReplacesSurfaces()
        {
            Assert.AreEqual(HolocastLook.Surface, Looks.At(HolocastLook.Surface, 0));
            Assert.AreEqual(HolocastLook.Points, Looks.At(HolocastLook.Surface, 1));
            Assert.AreEqual(HolocastLook.Points, Looks.At(HolocastLook.Points, 0));
            Assert.AreEqual(1, Looks.Levels(HolocastLook.Surface, true));
            Assert.AreEqual(0, Looks.Levels(HolocastLook.Surface, false), "no camera has a grid");
            Assert.AreEqual(0, Looks.Levels(HolocastLook.Points, true));
        }

        [Test]
        public void RaisesTheLevelWhileTheRateIsMissed()
        {
            var budget = new PointBudget();
            double now = 0;
            Run(budget, ref now, 1.5, 30, 2);
            Assert.AreEqual(0, budget.Level);
            Run(budget, ref now, 1, 30, 2);
            Assert.AreEqual(1, budget.Level);
            Run(budget, ref now, 20, 30, 2);
            Assert.AreEqual(2, budget.Level, "the level stays within the worst");
        }

        [Test]
        public void LowersTheLevelAndBacksOff()
        {
            var budget = new PointBudget();
            double now = 0;
            Run(budget, ref now, 3, 30, 2);
            Assert.AreEqual(1, budget.Level);
            Run(budget, ref now, 16, 60, 2);
            Assert.AreEqual(0, budget.Level, "lowered after fifteen good seconds");
            Run(budget, ref now, 3, 30, 2);
            Assert.AreEqual(1, budget.Level);
            Run(budget, ref now, 20, 60, 2);
            Assert.AreEqual(1, budget.Level, "the attempt failed, so the next one takes longer");
            Run(budget, ref now, 12, 60, 2);
            Assert.AreEqual(0, budget.Level);
        }

        [Test]
        public void KeepsTheLevelBetweenThresholds()
        {
            var budget = new PointBudget();
            double now = 0;
            Run(budget, ref now, 3, 30, 2);
            Run(budget, ref now, 60, 54, 2);
            Assert.AreEqual(1, budget.Level);
            Run(budget, ref now, 5, 54, 0);
            Assert.AreEqual(0, budget.Level, "a level beyond the worst is lowered");
        }

        [Test]
        public void IgnoresAnUnknownRate()
        {
            var budget = new PointBudget();
            for (double now = 0; now < 60; now++)
            {
                Assert.AreEqual(0, budget.Update(now, 1, 0, 3));
            }
        }
    }
}
