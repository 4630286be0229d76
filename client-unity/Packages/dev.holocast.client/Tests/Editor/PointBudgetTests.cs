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
