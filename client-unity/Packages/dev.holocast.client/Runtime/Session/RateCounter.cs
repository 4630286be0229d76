namespace Holocast
{
    // Counts the events of the last second.
    sealed class RateCounter
    {
        const int Capacity = 1024;

        readonly double[] at = new double[Capacity];
        int next;
        int count;
        double now;

        public void Count(double seconds)
        {
            now = seconds;
            at[next] = seconds;
            next = (next + 1) % Capacity;
            if (count < Capacity)
            {
                count++;
            }
            // Drop events older than a second.
            while (count > 1 && now - at[(next - count + Capacity) % Capacity] >= 1)
            {
                count--;
            }
        }

        public double PerSecond => count;
    }
}
