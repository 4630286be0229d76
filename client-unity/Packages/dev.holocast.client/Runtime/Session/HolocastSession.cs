using System;
using System.Collections.Generic;
using Holocast.Native;
using UnityEngine;
using UnityEngine.Events;

namespace Holocast
{
    /// <summary>
    /// A session at a relay: connects, follows it whatever happens to relay and publisher, and
    /// knows its cameras. What is beneath it shows the frames (HolocastPoints), places them
    /// (HolocastPlacement) and says how it goes (HolocastHud).
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Session")]
    [DefaultExecutionOrder(-100)]
    [DisallowMultipleComponent]
    public sealed class HolocastSession : MonoBehaviour
    {
        [SerializeField, Tooltip("moqt://host:port/session, or a link of the web viewer")]
        string url = "moqt://localhost:4443/demo";

        [SerializeField, Tooltip("SHA-256 of the relay's certificate, hex. Empty: what the platform trusts, and relays on this machine")]
        string certificateHash = "";

        [SerializeField, Tooltip("Take the certificate's hash from the relay itself, over plain HTTP. For development only: whoever is on the path can pose as the relay")]
        bool insecure;

        [SerializeField, Tooltip("Tell the publisher of every frame that was shown")]
        bool receipts = true;

        [SerializeField, Tooltip("Connect when this component is enabled")]
        bool connectOnEnable = true;

        [SerializeField]
        UnityEvent<HolocastState> stateChanged = new UnityEvent<HolocastState>();

        readonly HolocastCatalog catalog = new HolocastCatalog();
        readonly List<string> sessions = new List<string>();
        Client client;
        HolocastAddress address;
        HcState native;
        string detail = "";
        string notice = "";

        /// <summary>moqt://host:port/session, host:port/session or a link of the web viewer. Takes effect with Connect.</summary>
        public string Url
        {
            get => url;
            set => url = value ?? "";
        }

        /// <summary>SHA-256 of the relay's certificate, hex; empty = the platform's trust. Takes effect with Connect.</summary>
        public string CertificateHash
        {
            get => certificateHash;
            set => certificateHash = value ?? "";
        }

        public HolocastState State { get; private set; }

        /// <summary>What to tell the user, in a sentence; empty while all is well.</summary>
        public string Message { get; private set; } = "";

        /// <summary>The cameras; empty until the catalog is here.</summary>
        public HolocastCatalog Catalog => catalog;

        /// <summary>Sessions of the relay, where Url names none.</summary>
        public IReadOnlyList<string> Sessions => sessions;

        /// <summary>Connected to: Url and CertificateHash as they were then.</summary>
        public HolocastAddress Address => address;

        /// <summary>Connections after the first.</summary>
        public int Reconnects => (int)native.reconnects;

        /// <summary>Frames are of the past: a replayed recording, whose delays count from their arrival.</summary>
        public bool Replayed => (native.flags & Abi.StateReplayed) != 0;

        /// <summary>The session has 360° video, which a HolocastSphere shows.</summary>
        public bool HasSphere => (native.flags & Abi.StateSphere) != 0;

        public bool Receipts
        {
            get => receipts;
            set => receipts = value;
        }

        public bool Insecure
        {
            get => insecure;
            set => insecure = value;
        }

        /// <summary>Called on the main thread with the new state.</summary>
        public UnityEvent<HolocastState> StateChanged => stateChanged;

        /// <summary>Called on the main thread when cameras came, went or moved.</summary>
        public event Action CatalogChanged;

        /// <summary>Called on the main thread when Sessions changed.</summary>
        public event Action SessionsChanged;

        internal Client Client => client;

        // A HolocastSphere shows the session's 360° video.
        internal bool ShowsSphere { get; set; }

        /// <summary>Changes with every connection: what was known of the previous one is void.</summary>
        internal int Generation { get; private set; }

        /// <summary>Connects to Url, after leaving what was connected to.</summary>
        public void Connect()
        {
            Close();
            if (!HolocastAddress.TryParse(url, out address))
            {
                Fail("“" + url + "” is not an address of a session: it is like moqt://host:4443/demo.");
                return;
            }
            string hash = certificateHash.Length > 0 ? certificateHash : address.CertificateHash;
            address = new HolocastAddress(address.Url, hash);
            try
            {
                uint flags = (receipts ? 0 : Abi.NoReceipts) | (insecure ? Abi.Insecure : 0);
                client = Client.Open(address.Url, hash.Length > 0 ? hash : null, null, flags);
            }
            catch (HolocastException e)
            {
                Fail(e.Message);
                return;
            }
            Enter(HolocastState.Connecting);
        }

        /// <summary>Connects to another address.</summary>
        public void Connect(HolocastAddress to)
        {
            url = to.Url;
            certificateHash = to.CertificateHash;
            Connect();
        }

        /// <summary>Leaves the session.</summary>
        public void Disconnect()
        {
            Close();
            Enter(HolocastState.Disconnected);
        }

        /// <summary>Figures of the last seconds and of the whole run, of all cameras.</summary>
        public bool TryGetStatistics(out HolocastStatistics statistics)
        {
            statistics = default;
            if (client == null || !client.Stats(Abi.AllCameras, out HcStats s))
            {
                return false;
            }
            HcClock clock = client.Clock();
            statistics = new HolocastStatistics(s, clock, Replayed);
            return true;
        }

        /// <summary>The same of the 360° video; false while there is no picture of it.</summary>
        public bool TryGetSphereStatistics(out HolocastStatistics statistics)
        {
            statistics = default;
            if (client == null || !client.Stats(Abi.Sphere, out HcStats s))
            {
                return false;
            }
            statistics = new HolocastStatistics(s, client.Clock(), Replayed);
            return true;
        }

        // Something that is no failure but that the user is to know, as a frame that is too large.
        internal void SetNotice(string sentence)
        {
            if (notice == sentence)
            {
                return;
            }
            notice = sentence;
            Tell();
        }

        void OnEnable()
        {
            if (connectOnEnable)
            {
                Connect();
            }
        }

        void OnDisable()
        {
            Disconnect();
        }

        // On HoloLens an app that is left goes on for a while; its frames are of no use to anybody.
        void OnApplicationPause(bool paused)
        {
            if (State == HolocastState.Disconnected || State == HolocastState.Failed)
            {
                return;
            }
            if (paused)
            {
                Close();
            }
            else if (client == null)
            {
                Connect();
            }
        }

        void Update()
        {
            if (client == null || !client.Poll(out HcState now))
            {
                return;
            }
            HcState before = native;
            native = now;
            if (now.errorVersion != before.errorVersion)
            {
                detail = client.Error();
            }
            if (now.catalogVersion != before.catalogVersion)
            {
                catalog.Read(client);
                CatalogChanged?.Invoke();
            }
            if (now.sessionsVersion != before.sessionsVersion)
            {
                client.Sessions(sessions);
                SessionsChanged?.Invoke();
            }
            HolocastState state = Messages.State(now, ShowsSphere);
            if (state != State)
            {
                Enter(state);
            }
            else if (now.errorVersion != before.errorVersion || now.flags != before.flags)
            {
                Tell();
            }
        }

        void Close()
        {
            client?.Dispose();
            client = null;
            native = default;
            detail = "";
            notice = "";
            Generation++;
            if (catalog.Cameras.Count > 0)
            {
                catalog.Clear();
                CatalogChanged?.Invoke();
            }
            if (sessions.Count > 0)
            {
                sessions.Clear();
                SessionsChanged?.Invoke();
            }
        }

        void Fail(string sentence)
        {
            detail = sentence;
            Enter(HolocastState.Failed);
        }

        void Enter(HolocastState state)
        {
            bool changed = state != State;
            State = state;
            Tell();
            if (changed)
            {
                stateChanged.Invoke(state);
            }
        }

        void Tell()
        {
            string message = Messages.For(State, address, detail, native.flags);
            Message = message.Length > 0 ? message : notice;
        }
    }
}
