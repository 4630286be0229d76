using System.Collections.Generic;
using UnityEngine;
using UnityEngine.XR;

namespace Holocast
{
    // The target frame rate: pictures per second that Unity should render for the display.
    static class DisplayRate
    {
        // Unity's rate on phones and tablets, if the application sets none.
        const double MobileRate = 30;

        static readonly List<XRDisplaySubsystem> Headsets = new List<XRDisplaySubsystem>();

        // Returns 0 if it is unknown.
        public static double Current()
        {
            SubsystemManager.GetSubsystems(Headsets);
            for (int i = 0; i < Headsets.Count; i++)
            {
                if (Headsets[i].running && Headsets[i].TryGetDisplayRefreshRate(out float rate) && rate > 1)
                {
                    return rate;
                }
            }
            return Of(Screen.currentResolution.refreshRateRatio.value, QualitySettings.vSyncCount,
                Application.targetFrameRate, Application.isMobilePlatform);
        }

        // refresh: the screen's refresh rate in Hz; 0 or NaN if unknown. vSyncs: refreshes per picture; 0
        // without synchronization. target: pictures per second without synchronization, and on phones,
        // which always synchronize.
        public static double Of(double refresh, int vSyncs, int target, bool mobile)
        {
            bool known = refresh > 1;
            if (vSyncs > 0 && !mobile)
            {
                return known ? refresh / vSyncs : 0;
            }
            double wanted = target > 0 ? target : mobile ? MobileRate : 0;
            return wanted > 0 && known ? System.Math.Min(wanted, refresh) : wanted > 0 ? wanted : known ? refresh : 0;
        }
    }
}
