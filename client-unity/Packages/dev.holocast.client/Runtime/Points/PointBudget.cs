namespace Holocast
{
    // How many of the points on offer to ask for, so that the display keeps its rate. Level 0 is
    // everything; each further level is about half. Times are seconds.
    sealed class PointBudget
    {
        // A display that shows fewer pictures than this part of its rate misses it, one that
        // shows more than that part keeps it.
        const double Misses = 0.85;
        const double Keeps = 0.97;

        // Watched before a level is left for the next worse.
        const double Watch = 2;

        // How long all must be well before the next better level is tried; twice as long after
        // each try that failed.
        const double FirstPatience = 15;
        const double MostPatience = 240;

        double missedSince = -1;
        double keptSince = -1;
        double raisedAt = -1;
        double patience = FirstPatience;

        public int Level { get; private set; }

        // After a change of what is shown: what was measured before says nothing.
        public void Restart()
        {
            missedSince = keptSince = -1;
        }

        // Takes the pictures of the last second and the display's rate; returns the level, 0 to worst.
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
