using System;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    /// <summary>
    /// Shows the state of a device for its first report, above the HUD's statistics: library, device,
    /// graphics, session, the relay's answer over UDP, display rate and memory.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Self-test")]
    [RequireComponent(typeof(HolocastHud))]
    public sealed class HolocastSelfTest : MonoBehaviour
    {
        const double Period = 1; // seconds between updates

        HolocastHud hud;
        double nextAt;

        void OnEnable()
        {
            hud = GetComponent<HolocastHud>();
            nextAt = 0;
        }

        void OnDisable()
        {
            hud.Header = "";
        }

        void Update()
        {
            double now = Time.unscaledTimeAsDouble;
            if (now >= nextAt)
            {
                nextAt = now + Period;
                hud.Header = Report(hud.Session);
            }
        }

        static string Report(HolocastSession session)
        {
            string problem = Plugin.Problem();
            double rate = DisplayRate.Current();
            string text = "Library: " + (problem ?? "interface " + Abi.Version + ", loaded") + "\n"
                + SystemInfo.deviceModel + ", " + SystemInfo.operatingSystem + "\nUnity " + Application.unityVersion
                + ", " + SystemInfo.graphicsDeviceType + ", display "
                + (rate > 0 ? Math.Round(rate) + " Hz" : "of unknown rate")
                + "\nMemory " + GC.GetTotalMemory(false) / 1024 + " KiB of C#";
            if (session == null)
            {
                return text + "\n";
            }
            if (session.TryGetStatistics(out HolocastStatistics s))
            {
                text += ", " + s.MemoryBytes / 1024 + " KiB of the library";
            }
            return text + "\nSession: " + session.State + ", UDP: " + Udp(session.State) + "\n";
        }

        // Whether the relay has answered over UDP.
        internal static string Udp(HolocastState state)
        {
            switch (state)
            {
                case HolocastState.Disconnected:
                case HolocastState.Failed: return "not tried";
                case HolocastState.Connecting: return "waiting for an answer";
                case HolocastState.Unreachable: return "no answer";
                case HolocastState.Lost: return "lost";
                default: return "answered";
            }
        }
    }
}
