namespace Holocast
{
    // Counts the events of the last second.
    sealed class RateCounter
    {
        const int Most = 1024;

        readonly double[] at = new double[Most];
        int next;
        int count;
        double now;

        public void Count(double seconds)
        {
            now = seconds;
            at[next] = seconds;
            next = (next + 1) % Most;
            if (count < Most)
            {
                count++;
            }
            // Drop events older than a second.
            while (count > 1 && now - at[(next - count + Most) % Most] >= 1)
            {
                count--;
            }
        }

        public double PerSecond => count;
    }
}
