namespace Holocast
{
    // Decides how many points to request so that the display keeps its frame rate. Level 0 requests
    // all; each further level about half as many. Times are in seconds.
    sealed class PointBudget
    {
        // Below MissedBelow × its rate, the display counts as missing its rate; above KeptAbove ×
        // its rate, as keeping it.
        const double MissedBelow = 0.85;
        const double KeptAbove = 0.97;

        // How long the rate must be missed before the level is raised.
        const double RaiseAfter = 2;

        // How long the rate must be kept before the level is lowered. Doubles each time the lower
        // level makes the display miss its rate again.
        const double InitialHold = 15;
        const double MaxHold = 240;

        double missedSince = -1;
        double keptSince = -1;
        double loweredAt = -1;
        double hold = InitialHold;

        public int Level { get; private set; }

        // Discards the measurement. Call this after the displayed content has changed.
        public void Restart()
        {
            missedSince = keptSince = -1;
        }

        // Updates and returns the level. pictures: number in the last second. rate: the display's rate.
        // worst: the highest level allowed.
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
            if (pictures < MissedBelow * rate)
            {
                keptSince = -1;
                if (missedSince < 0)
                {
                    missedSince = now;
                }
                else if (now - missedSince >= RaiseAfter && Level < worst)
                {
                    if (loweredAt >= 0 && now - loweredAt < 2 * InitialHold && hold < MaxHold)
                    {
                        hold *= 2;
                    }
                    Level++;
                    missedSince = -1;
                }
            }
            else if (pictures < KeptAbove * rate)
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
                else if (Level > 0 && now - keptSince >= hold)
                {
                    Level--;
                    loweredAt = now;
                    keptSince = -1;
                }
            }
            return Level;
        }
    }
}
