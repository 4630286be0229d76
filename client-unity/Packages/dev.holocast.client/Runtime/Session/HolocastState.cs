using Holocast.Native;

namespace Holocast
{
    /// <summary>Where a session stands.</summary>
    public enum HolocastState
    {
        /// <summary>Nobody asked for a session.</summary>
        Disconnected,

        /// <summary>The address or the native library cannot be used; it is not tried again.</summary>
        Failed,

        Connecting,

        /// <summary>The relay does not answer; it is being tried again.</summary>
        Unreachable,

        /// <summary>The relay's certificate is not trusted; it is being tried again.</summary>
        CertificateRefused,

        /// <summary>The relay or the session's content refuses.</summary>
        Refused,

        /// <summary>The connection broke; it is being tried again.</summary>
        Lost,

        /// <summary>The address names no session, only a relay.</summary>
        Listing,

        /// <summary>Connected; nobody publishes the session, or it has no cameras.</summary>
        Waiting,

        Live,

        /// <summary>Published, but no frame came for three seconds.</summary>
        Silent,

        /// <summary>The publisher ended the session or went away; one that returns is followed.</summary>
        Ended,
    }

    // What a person is told of a state, in one sentence.
    static class Messages
    {
        // showsSphere: something in the scene shows 360° video.
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
                    return (native.flags & Abi.StateNoCamera) != 0 && !sphere ? HolocastState.Waiting : HolocastState.Live;
            }
        }

        // detail: what the native library says of its latest error, a sentence or nothing. flags: HcState's.
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
                    return With(session.Length > 0 ? "The relay at " + host + " does not serve “" + session + "”" : "The relay at " + host + " does not list its sessions", host, detail);
                case HolocastState.Lost:
                    return With("The connection to " + host + " broke; trying again", host, detail);
                case HolocastState.Waiting:
                    if ((flags & (Abi.StateNoCamera | Abi.StateSphere)) == (Abi.StateNoCamera | Abi.StateSphere))
                    {
                        return "Session “" + session + "” is 360° video, which nothing in this scene shows: add a HolocastSphere.";
                    }
                    return (flags & Abi.StateNoCamera) != 0
                        ? "Session “" + session + "” has no cameras so far; they appear here when it has."
                        : "Nobody publishes “" + session + "” at " + host + " so far; it appears here when it begins.";
                case HolocastState.Listing:
                    return (flags & Abi.StateSomeSessions) != 0 ? "The relay at " + host + " lists only the sessions that the token allows." : "";
                case HolocastState.Live:
                    return (flags & Abi.StateUndecodable) != 0 ? Sentence(detail) : "";
                case HolocastState.Silent:
                    return "“" + session + "” is published, but no frame has come for some seconds.";
                case HolocastState.Ended:
                    return "Nobody publishes “" + session + "” any more; it appears here if it begins again.";
                case HolocastState.Failed:
                    return Sentence(detail);
                default:
                    return "";
            }
        }

        // Of an empty list of sessions. flags: HcState's.
        public static string NoSessions(in HolocastAddress address, uint flags)
        {
            return "The relay at " + address.Host + " has no session " + ((flags & Abi.StateSomeSessions) != 0 ? "that the token allows " : "") + "so far.";
        }

        // detail: of the native library, which may name the host itself.
        static string With(string what, string host, string detail)
        {
            detail = (detail ?? "").Trim();
            if (detail.Length == 0)
            {
                return what + ".";
            }
            return detail.Contains(host) ? Sentence(detail) : Sentence(what + ": " + detail);
        }

        // From a capital letter to a full stop or question mark.
        public static string Sentence(string text)
        {
            text = text.Trim();
            if (text.Length == 0)
            {
                return text;
            }
            return char.ToUpperInvariant(text[0]) + text.Substring(1) + (text.EndsWith(".") || text.EndsWith("?") ? "" : ".");
        }
    }
}
