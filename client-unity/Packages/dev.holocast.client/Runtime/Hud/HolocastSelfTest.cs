using System;
using System.Globalization;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    /// <summary>
    /// Shows, above the HUD's statistics, the state of a device that is tried for the first time:
    /// library, device, graphics, decoding time of a frame, session, the relay's answer over UDP, display
    /// rate and memory.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Self-test")]
    [RequireComponent(typeof(HolocastHud))]
    public sealed class HolocastSelfTest : MonoBehaviour
    {
        const double Period = 1; // seconds between updates

        const int Runs = 20; // of the decoder

        [SerializeField, Tooltip("An encoded point-cloud frame, decoded once to measure the device; none skips this")]
        TextAsset frame;

        HolocastHud hud;
        string decoding;
        double nextAt;

        void OnEnable()
        {
            hud = GetComponent<HolocastHud>();
            nextAt = 0;
            decoding = decoding ?? (frame != null ? Decoding(frame.bytes) : "");
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
                hud.Header = Report(hud.Session, decoding);
            }
        }

        static string Report(HolocastSession session, string decoding)
        {
            string problem = Plugin.Problem();
            double rate = DisplayRate.Current();
            string text = "Library: " + (problem ?? "interface " + Abi.Version + ", loaded") + "\n"
                + SystemInfo.deviceModel + ", " + SystemInfo.operatingSystem + "\nUnity " + Application.unityVersion
                + ", " + SystemInfo.graphicsDeviceType + ", display "
                + (rate > 0 ? Math.Round(rate) + " Hz" : "of unknown rate") + decoding
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

        // Shortest decoding time of several runs, because the first ones allocate.
        internal static string Decoding(byte[] frame)
        {
            if (Plugin.Problem() != null)
            {
                return ""; // shown already
            }
            try
            {
                var words = new uint[0];
                HcFrame best = Client.Decode(frame, ref words);
                for (int i = 1; i < Runs; i++)
                {
                    best.decodeUs = Math.Min(best.decodeUs, Client.Decode(frame, ref words).decodeUs);
                }
                return "\nDecoding " + best.points + " points: "
                    + (best.decodeUs / 1000.0).ToString("F2", CultureInfo.InvariantCulture) + " ms";
            }
            catch (HolocastException e)
            {
                return "\nDecoding: " + e.Message;
            }
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
