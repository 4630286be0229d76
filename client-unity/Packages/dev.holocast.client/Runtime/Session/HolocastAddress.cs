using System;

namespace Holocast
{
    /// <summary>Address of a session or relay. Parses typed text, stored addresses and QR codes.</summary>
    public readonly struct HolocastAddress : IEquatable<HolocastAddress>
    {
        /// <summary>
        /// moqt://host[:port][/session][?token=…][#e2e=…]. The token authorizes the viewer at the relay; the keys
        /// after #e2e= decrypt the session and are not sent.
        /// </summary>
        public readonly string Url;

        /// <summary>SHA-256 of the relay's certificate, hex; empty uses the platform's trust store.</summary>
        public readonly string CertificateHash;

        /// <summary>
        /// Creates an address from a moqt:// URL and a certificate hash (hex, or empty), without validation.
        /// </summary>
        public HolocastAddress(string url, string certificateHash)
        {
            Url = url ?? "";
            CertificateHash = certificateHash ?? "";
        }

        /// <summary>
        /// Parses moqt://host:port/session, host:port/session, or a web viewer link
        /// (http://…/?relay=https://host:port&amp;session=…&amp;certificate=…#token=…&amp;e2e=…). The first two may
        /// end in #hash, the SHA-256 of the certificate, and #e2e=…. Returns false if the text is none of these.
        /// </summary>
        public static bool TryParse(string text, out HolocastAddress address)
        {
            address = default;
            text = (text ?? "").Trim();
            int query = text.IndexOf('?');
            if (query >= 0 && Scheme(text).StartsWith("http", StringComparison.Ordinal))
            {
                return TryParseLink(text, query, out address);
            }
            string hash = "";
            string keys = "";
            string[] parts = text.Split('#');
            text = parts[0];
            for (int i = 1; i < parts.Length; i++)
            {
                if (parts[i].StartsWith(KeysField, StringComparison.Ordinal))
                {
                    keys = "#" + parts[i];
                }
                else
                {
                    hash = parts[i];
                }
            }
            string scheme = Scheme(text);
            if (scheme.Length > 0 && scheme != "moqt" && scheme != "https")
            {
                return false;
            }
            string rest = scheme.Length > 0 ? text.Substring(scheme.Length + 3) : text;
            int slash = rest.IndexOfAny(new[] { '/', '?' });
            string host = slash < 0 ? rest : rest.Substring(0, slash);
            string session = slash < 0 ? "" : rest.Substring(slash).TrimEnd('/');
            if (!IsHost(host) || !IsHash(hash))
            {
                return false;
            }
            address = new HolocastAddress("moqt://" + host + session + keys, hash);
            return true;
        }

        /// <summary>
        /// True for a pairing link as holocast pair prints it: http://host:port/pair/code#key.
        /// </summary>
        public static bool IsPairingLink(string text)
        {
            text = (text ?? "").Trim();
            int path = text.IndexOf("/pair/", StringComparison.Ordinal);
            return Scheme(text) == "http" && path > 0 && text.IndexOf('#') > path;
        }

        // If the link names no relay, use port 4443 of the page's host.
        static bool TryParseLink(string link, int query, out HolocastAddress address)
        {
            address = default;
            string page = link.Substring(0, query);
            string scheme = Scheme(page);
            if (scheme != "http" && scheme != "https")
            {
                return false;
            }
            string relay = "", session = "", hash = "", token = "", keys = "";
            string values = link.Substring(query + 1);
            int mark = values.IndexOf('#');
            if (mark >= 0)
            {
                foreach (string secret in values.Substring(mark + 1).Split('&'))
                {
                    if (secret.StartsWith("token=", StringComparison.Ordinal))
                    {
                        token = "?" + secret;
                    }
                    else if (secret.StartsWith(KeysField, StringComparison.Ordinal))
                    {
                        keys = "#" + secret;
                    }
                }
                values = values.Substring(0, mark);
            }
            foreach (string pair in values.Split('&'))
            {
                int equals = pair.IndexOf('=');
                if (equals < 0)
                {
                    continue;
                }
                string value = Uri.UnescapeDataString(pair.Substring(equals + 1).Replace('+', ' '));
                switch (pair.Substring(0, equals))
                {
                    case "relay": relay = value; break;
                    case "session": session = value; break;
                    case "certificate": hash = value; break;
                }
            }
            if (relay.Length == 0)
            {
                string host = page.Substring(scheme.Length + 3);
                int end = host.IndexOf('/');
                host = end < 0 ? host : host.Substring(0, end);
                int port = host.LastIndexOf(':');
                if (port > host.LastIndexOf(']'))
                {
                    host = host.Substring(0, port);
                }
                relay = host + ":4443";
            }
            string by = Scheme(relay);
            if (by.Length > 0 && by != "moqt" && by != "https")
            {
                return false;
            }
            return TryParse("moqt://" + AfterScheme(relay).TrimEnd('/') + "/" + session.Trim('/') + token
                + keys + (hash.Length > 0 ? "#" + hash : ""), out address);
        }

        // Begins the keys of an encrypted session, after a #.
        const string KeysField = "e2e=";

        /// <summary>host[:port].</summary>
        public string Host
        {
            get
            {
                string rest = AfterScheme(Url);
                int end = rest.IndexOfAny(new[] { '/', '?', '#' });
                return end < 0 ? rest : rest.Substring(0, end);
            }
        }

        /// <summary>The session's name; empty if the address names only a relay.</summary>
        public string Session
        {
            get
            {
                string rest = AfterScheme(Url);
                int slash = rest.IndexOf('/');
                return slash < 0 ? "" : rest.Substring(slash + 1).Split('?', '#')[0].Trim('/');
            }
        }

        /// <summary>The URL's secrets: ?token=…#e2e=…, one of them, or an empty string.</summary>
        internal string Token
        {
            get
            {
                int query = (Url ?? "").IndexOfAny(new[] { '?', '#' });
                return query < 0 ? "" : Url.Substring(query);
            }
        }

        /// <summary>The same address without its token and keys, for storage in clear text.</summary>
        internal HolocastAddress WithoutToken()
        {
            return WithToken("");
        }

        /// <summary>The same address with a token in the form of Token.</summary>
        internal HolocastAddress WithToken(string token)
        {
            return new HolocastAddress((Url ?? "").Split('?', '#')[0] + token, CertificateHash);
        }

        /// <summary>
        /// The address of another session at the same relay; null or empty gives the relay's address.
        /// </summary>
        public HolocastAddress WithSession(string session)
        {
            return new HolocastAddress("moqt://" + Host + (string.IsNullOrEmpty(session) ? "" : "/" + session) + Token,
                CertificateHash);
        }

        /// <summary>Text that TryParse accepts, including token and hash.</summary>
        public override string ToString()
        {
            return CertificateHash.Length == 0 ? Url : Url + "#" + CertificateHash;
        }

        /// <summary>True if URL and certificate hash are equal.</summary>
        public bool Equals(HolocastAddress other)
        {
            return Url == other.Url && CertificateHash == other.CertificateHash;
        }

        public override bool Equals(object other)
        {
            return other is HolocastAddress address && Equals(address);
        }

        public override int GetHashCode()
        {
            return (Url ?? "").GetHashCode();
        }

        static string Scheme(string text)
        {
            int colon = text.IndexOf("://", StringComparison.Ordinal);
            return colon < 0 ? "" : text.Substring(0, colon).ToLowerInvariant();
        }

        static string AfterScheme(string url)
        {
            url = url ?? "";
            int colon = url.IndexOf("://", StringComparison.Ordinal);
            return colon < 0 ? url : url.Substring(colon + 3);
        }

        static bool IsHost(string host)
        {
            foreach (char c in host)
            {
                if (!char.IsLetterOrDigit(c) && ".-_:[]%".IndexOf(c) < 0)
                {
                    return false;
                }
            }
            return host.Length > 0;
        }

        // Empty, or 64 hex digits, colons allowed.
        static bool IsHash(string hash)
        {
            int digits = 0;
            foreach (char c in hash)
            {
                if (c == ':')
                {
                    continue;
                }
                if (!Uri.IsHexDigit(c))
                {
                    return false;
                }
                digits++;
            }
            return digits == 0 || digits == 64;
        }
    }
}
