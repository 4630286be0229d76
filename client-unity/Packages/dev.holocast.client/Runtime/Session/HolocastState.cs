using Holocast.Native;

namespace Holocast
{
    /// <summary>State of a HolocastSession.</summary>
    public enum HolocastState
    {
        /// <summary>Not connected and not connecting.</summary>
        Disconnected,

        /// <summary>The address or the native library is unusable. Not retried.</summary>
        Failed,

        /// <summary>Connecting for the first time.</summary>
        Connecting,

        /// <summary>The relay does not answer. Retrying.</summary>
        Unreachable,

        /// <summary>The relay's certificate is not trusted. Retrying.</summary>
        CertificateRefused,

        /// <summary>The relay refused the session, or its content is unsupported.</summary>
        Refused,

        /// <summary>The connection was lost. Retrying.</summary>
        Lost,

        /// <summary>The address names only a relay; its sessions are listed.</summary>
        Listing,

        /// <summary>Connected, but the session has no publisher or no cameras yet.</summary>
        Waiting,

        /// <summary>Frames arrive.</summary>
        Live,

        /// <summary>Published, but no frame for three seconds.</summary>
        Silent,

        /// <summary>The publisher ended the session or disconnected. Resumes if it returns.</summary>
        Ended,
    }

    // Maps states to messages for the user, one sentence each.
    static class Messages
    {
        // showsSphere: the scene shows 360° video.
        public static HolocastState State(in HcState native, bool showsSphere)
        {
            switch (native.phase)
            {
                case HcPhase.Connecting: return HolocastState.Connecting;
                case HcPhase.Unreachable: return HolocastState.Unreachable;
                case HcPhase.Certificate: return HolocastState.CertificateRefused;
                case HcPhase.Refused: return HolocastState.Refused;
                case HcPhase.Lost: return HolocastState.Lost;
                case HcPhase.Listing: return HolocastState.Listing;
                case HcPhase.Waiting: return HolocastState.Waiting;
                case HcPhase.Silent: return HolocastState.Silent;
                case HcPhase.Ended: return HolocastState.Ended;
                default:
                    bool sphere = showsSphere && (native.flags & Abi.StateSphere) != 0;
                    return (native.flags & Abi.StateNoCamera) != 0 && !sphere ? HolocastState.Waiting
                        : HolocastState.Live;
            }
        }

        // detail: the native library's latest error, or empty. flags: HcState.flags.
        public static string For(HolocastState state, in HolocastAddress address, string detail, uint flags)
        {
            string host = address.Host, session = address.Session;
            switch (state)
            {
                case HolocastState.Connecting:
                    return "Connecting to the relay at " + host + ".";
                case HolocastState.Unreachable:
                    return With("The relay at " + host + " does not answer; trying again", host, detail);
                case HolocastState.CertificateRefused:
                    return With("The certificate of the relay at " + host + " is not trusted", host, detail);
                case HolocastState.Refused:
                    return With(session.Length > 0 ? "The relay at " + host + " does not serve “" + session + "”"
                        : "The relay at " + host + " does not list its sessions", host, detail);
                case HolocastState.Lost:
                    return With("The connection to " + host + " was lost; trying again", host, detail);
                case HolocastState.Waiting:
                    if ((flags & (Abi.StateNoCamera | Abi.StateSphere)) == (Abi.StateNoCamera | Abi.StateSphere))
                    {
                        return "Session “" + session
                            + "” is 360° video, but this scene cannot show it: add a HolocastSphere.";
                    }
                    return (flags & Abi.StateNoCamera) != 0
                        ? "Session “" + session + "” has no cameras yet; waiting for one."
                        : "“" + session + "” at " + host + " has no publisher yet; waiting for one.";
                case HolocastState.Listing:
                    return (flags & Abi.StateSomeSessions) != 0 ? "The relay at " + host
                        + " lists only the sessions that the token allows." : "";
                case HolocastState.Live:
                    return (flags & Abi.StateUndecodable) != 0 ? Sentence(detail) : "";
                case HolocastState.Silent:
                    return "“" + session + "” is published, but no frames arrive.";
                case HolocastState.Ended:
                    return "“" + session + "” has no publisher any more; waiting for it to return.";
                case HolocastState.Failed:
                    return Sentence(detail);
                default:
                    return "";
            }
        }

        // Message for an empty session list. flags: HcState.flags.
        public static string NoSessions(in HolocastAddress address, uint flags)
        {
            return "The relay at " + address.Host + " has no sessions "
                + ((flags & Abi.StateSomeSessions) != 0 ? "that the token allows " : "") + "yet.";
        }

        // Appends the native library's detail, or uses it alone if it names the host itself.
        static string With(string what, string host, string detail)
        {
            detail = (detail ?? "").Trim();
            if (detail.Length == 0)
            {
                return what + ".";
            }
            return detail.Contains(host) ? Sentence(detail) : Sentence(what + ": " + detail);
        }

        // Adds an initial capital and a final full stop.
        public static string Sentence(string text)
        {
            text = text.Trim();
            if (text.Length == 0)
            {
                return text;
            }
            return char.ToUpperInvariant(text[0]) + text.Substring(1)
                + (text.EndsWith(".") || text.EndsWith("?") ? "" : ".");
        }
    }
}
