namespace Holocast
{
    // Decides how many points to request so that the display keeps its frame rate. Level 0 requests
    // all; each further level about half as many. Times are in seconds.
    sealed class PointBudget
    {
        // Below Misses × its rate the display misses its rate; above Keeps × its rate it keeps it.
        const double Misses = 0.85;
        const double Keeps = 0.97;

        // How long the rate must be missed before the level is raised.
        const double Watch = 2;

        // How long the rate must be kept before the level is lowered. Doubles each time lowering it
        // made the display miss its rate again.
        const double FirstPatience = 15;
        const double MostPatience = 240;

        double missedSince = -1;
        double keptSince = -1;
        double raisedAt = -1;
        double patience = FirstPatience;

        public int Level { get; private set; }

        // Discards the measurement, after a change of the content on display.
        public void Restart()
        {
            missedSince = keptSince = -1;
        }

        // Takes the pictures of the last second, the display's rate and the highest level; returns
        // the level.
        public int Update(double now, double pictures, double rate, int worst)
        {
            if (Level > worst)
            {
                Level = worst;
            }
            if (rate <= 0)
            {
                return Level;
            }
            if (pictures < Misses * rate)
            {
                keptSince = -1;
                if (missedSince < 0)
                {
                    missedSince = now;
                }
                else if (now - missedSince >= Watch && Level < worst)
                {
                    if (raisedAt >= 0 && now - raisedAt < 2 * FirstPatience && patience < MostPatience)
                    {
                        patience *= 2;
                    }
                    Level++;
                    missedSince = -1;
                }
            }
            else if (pictures < Keeps * rate)
            {
                Restart();
            }
            else
            {
                missedSince = -1;
                if (keptSince < 0)
                {
                    keptSince = now;
                }
                else if (Level > 0 && now - keptSince >= patience)
                {
                    Level--;
                    raisedAt = now;
                    keptSince = -1;
                }
            }
            return Level;
        }
    }
}
