using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    /// <summary>
    /// Lists a relay's sessions and remembers joined addresses. Their tokens are kept only while the app
    /// runs or, on HoloLens, in the Windows Credential Locker. Join connects a HolocastSession.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Browser")]
    [DefaultExecutionOrder(-95)]
    public sealed class HolocastBrowser : MonoBehaviour
    {
        const string Remembered = "Holocast.Addresses";
        const int MostRemembered = 8;

        [SerializeField, Tooltip("Session that Join connects. Empty: the one on this object or its parents")]
        HolocastSession session;

        [SerializeField, Tooltip("host:port of the relay. Empty: the session's relay")]
        string relay = "";

        readonly List<string> sessions = new List<string>();
        readonly List<HolocastAddress> addresses = new List<HolocastAddress>();
        Task<string> pairing;
        Client client;
        HcState native;
        HolocastAddress address;

        /// <summary>The session that Join connects.</summary>
        public HolocastSession Session
        {
            get => session;
            set => session = value;
        }

        /// <summary>Relay whose sessions are listed.</summary>
        public HolocastAddress Relay => address;

        /// <summary>
        /// Names of the relay's sessions, sorted. If the viewer's token is limited to some sessions, the
        /// relay may refuse the full list; then only the sessions named by the token or the address appear.
        /// </summary>
        public IReadOnlyList<string> Sessions => sessions;

        /// <summary>Addresses joined before, latest first.</summary>
        public IReadOnlyList<HolocastAddress> Addresses => addresses;

        /// <summary>A sentence for the user if there is a problem; otherwise empty.</summary>
        public string Message { get; private set; } = "";

        /// <summary>Raised on the main thread when Sessions, Addresses or Message changes.</summary>
        public event Action Changed;

        /// <summary>Lists the sessions of a relay. Accepts any text that HolocastAddress parses.</summary>
        public void Browse(string text)
        {
            relay = text ?? "";
            StopPairing();
            Close();
            if (!HolocastAddress.TryParse(relay, out HolocastAddress parsed))
            {
                Tell("“" + relay + "” is not the address of a relay: it is like relay.example:4443.");
                return;
            }
            address = parsed.WithSession("");
            try
            {
                // Keep the session in the URL, since a relay that refuses the full list is asked for
                // this one.
                client = Client.Open(parsed.Url, parsed.CertificateHash.Length > 0 ? parsed.CertificateHash : null,
                    null, Abi.NoReceipts | Abi.ListSessions);
                Tell("Asking " + address.Host + " for its sessions.");
            }
            catch (HolocastException e)
            {
                Tell(Messages.Sentence(e.Message));
            }
        }

        /// <summary>Joins a session of the listed relay by name.</summary>
        public void Join(string name)
        {
            Join(address.WithSession(name));
        }

        /// <summary>Joins a session and remembers its address.</summary>
        public void Join(HolocastAddress to)
        {
            StopPairing();
            Remember(to);
            if (session != null)
            {
                session.Connect(to);
            }
        }

        /// <summary>
        /// Joins the session of an address or, once the relay has answered, of a pairing link. Returns false
        /// if the text is neither.
        /// </summary>
        public bool JoinText(string text)
        {
            if (HolocastAddress.IsPairingLink(text))
            {
                TellPairing("Asking the relay for the pairing code's session.");
                pairing = Task.Run(() => Client.Pair(text));
                return true;
            }
            if (!HolocastAddress.TryParse(text, out HolocastAddress to) || to.Session.Length == 0)
            {
                return false;
            }
            Join(to);
            return true;
        }

        void FinishPairing()
        {
            Task<string> finished = pairing;
            pairing = null;
            if (finished.IsFaulted)
            {
                TellPairing(Messages.Sentence(finished.Exception.GetBaseException().Message));
            }
            else if (HolocastAddress.TryParse(finished.Result, out HolocastAddress to) && to.Session.Length > 0)
            {
                Tell("");
                Join(to);
            }
            else
            {
                TellPairing("The pairing code's address names no session.");
            }
        }

        void StopPairing()
        {
            pairing = null;
            if (session != null)
            {
                session.SetNotice(this, "");
            }
        }

        // Also shows the sentence in the HUD, since the scene may have no session list.
        void TellPairing(string sentence)
        {
            Tell(sentence);
            if (session != null)
            {
                session.SetNotice(this, sentence);
            }
        }

        /// <summary>Removes a remembered address.</summary>
        public void Forget(HolocastAddress old)
        {
            RemoveAddress(old);
            Save();
        }

        /// <summary>Disconnects from the relay. Sessions becomes empty.</summary>
        public void Close()
        {
            client?.Dispose();
            client = null;
            native = default;
            sessions.Clear();
        }

        void OnEnable()
        {
            if (session == null)
            {
                session = GetComponentInParent<HolocastSession>();
            }
            Load();
            if (addresses.Count > 0)
            {
                Save();
            }
            if (relay.Length > 0)
            {
                Browse(relay);
            }
        }

        void OnDisable()
        {
            StopPairing();
            Close();
        }

        void Update()
        {
            if (pairing != null && pairing.IsCompleted)
            {
                FinishPairing();
            }
            if (client == null || !client.Poll(out HcState now))
            {
                return;
            }
            HcState before = native;
            native = now;
            if (now.sessionsVersion != before.sessionsVersion)
            {
                client.Sessions(sessions);
            }
            if (now.phase == before.phase && now.flags == before.flags && now.sessionsVersion == before.sessionsVersion
                && now.errorVersion == before.errorVersion)
            {
                return;
            }
            bool none = now.phase == HcPhase.Listing && sessions.Count == 0;
            Tell(none ? Messages.NoSessions(address, now.flags)
                : Messages.For(Messages.State(now, false), address, client.Error(), now.flags));
        }

        void Tell(string sentence)
        {
            Message = sentence;
            Changed?.Invoke();
        }

        void Remember(HolocastAddress used)
        {
            RemoveAddress(used);
            addresses.Insert(0, used);
            TokenStore.Save(used.WithoutToken(), used.Token);
            while (addresses.Count > MostRemembered)
            {
                RemoveAddress(addresses[MostRemembered]);
            }
            Save();
        }

        // Removes an address, whatever its token.
        void RemoveAddress(HolocastAddress old)
        {
            old = old.WithoutToken();
            TokenStore.Delete(old);
            addresses.RemoveAll(a => a.WithoutToken().Equals(old));
        }

        void Load()
        {
            addresses.Clear();
            foreach (string line in PlayerPrefs.GetString(Remembered, "").Split('\n'))
            {
                if (HolocastAddress.TryParse(line, out HolocastAddress a) && addresses.Count < MostRemembered)
                {
                    // Earlier versions stored tokens here.
                    addresses.Add(a.Token.Length > 0 ? a : a.WithToken(TokenStore.Load(a)));
                }
            }
        }

        void Save()
        {
            PlayerPrefs.SetString(Remembered, string.Join("\n", addresses.Select(a => a.WithoutToken())));
            PlayerPrefs.Save();
            Changed?.Invoke();
        }
    }
}
