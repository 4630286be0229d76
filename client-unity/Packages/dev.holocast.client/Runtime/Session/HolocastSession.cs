using System;
using System.Collections.Generic;
using Holocast.Native;
using UnityEngine;
using UnityEngine.Events;

namespace Holocast
{
    /// <summary>
    /// Connects to a session at a relay and follows it across restarts of relay and publisher. Child
    /// components show its frames (HolocastPoints), place them (HolocastPlacement) and report status
    /// (HolocastHud). All members must be used on the main thread.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Session")]
    [DefaultExecutionOrder(-100)]
    [DisallowMultipleComponent]
    public sealed class HolocastSession : MonoBehaviour
    {
        [SerializeField, Tooltip("moqt://host:port/session, or a web viewer link. Empty: joined later by menu or QR code")]
        string url = "moqt://localhost:4443/demo";

        [SerializeField,
            Tooltip(
            "SHA-256 of the relay's certificate, hex. Empty: the platform's trust store; relays on this machine are "
            + "always trusted")]
        string certificateHash = "";

        [SerializeField,
            Tooltip(
            "Fetch the certificate's hash from the relay over plain HTTP. For development only: an attacker on the "
            + "path can impersonate the relay")]
        bool insecure;

        [SerializeField,
            Tooltip(
            "Decode 360° video with Media Foundation (Windows, HoloLens) or MediaCodec (Android). If that fails, "
            + "OpenH264 takes over, and the log says so. Not tested on devices yet")]
        bool platformVideo;

        [SerializeField, Tooltip("Send the publisher a receipt for every frame shown")]
        bool receipts = true;

        [SerializeField, Tooltip("Play the session's sound")]
        bool sound = true;

        [SerializeField, Range(0, 1), Tooltip("Volume of the session's sound")]
        float volume = 1;

        [SerializeField, Tooltip("Connect when this component is enabled")]
        bool connectOnEnable = true;

        [SerializeField]
        UnityEvent<HolocastState> stateChanged = new UnityEvent<HolocastState>();

        readonly HolocastCatalog catalog = new HolocastCatalog();
        readonly List<string> sessions = new List<string>();
        readonly SoundSources sounds = new SoundSources();
        Client client;
        HolocastAddress address;
        HcState native;
        readonly Dictionary<object, string> notices = new Dictionary<object, string>();
        string detail = "";

        /// <summary>
        /// moqt://host:port/session, host:port/session or a web viewer link; empty if the session is joined
        /// later. Takes effect with Connect.
        /// </summary>
        public string Url
        {
            get => url;
            set => url = value ?? "";
        }

        /// <summary>
        /// SHA-256 of the relay's certificate, hex; empty uses the platform's trust store. Takes effect with
        /// Connect.
        /// </summary>
        public string CertificateHash
        {
            get => certificateHash;
            set => certificateHash = value ?? "";
        }

        /// <summary>State of the session.</summary>
        public HolocastState State { get; private set; }

        /// <summary>A sentence for the user if there is a problem; otherwise empty.</summary>
        public string Message { get; private set; } = "";

        /// <summary>The session's cameras; empty until the catalog arrives.</summary>
        public HolocastCatalog Catalog => catalog;

        /// <summary>Sessions of the relay, if Url names none.</summary>
        public IReadOnlyList<string> Sessions => sessions;

        /// <summary>The address of the current connection: Url and CertificateHash as of Connect.</summary>
        public HolocastAddress Address => address;

        /// <summary>Number of reconnects.</summary>
        public int Reconnects => (int)native.reconnects;

        /// <summary>True if frames come from a recording. Delays then count from arrival instead of capture.</summary>
        public bool Replayed => (native.flags & Abi.StateReplayed) != 0;

        /// <summary>True if the session has 360° video, which HolocastSphere shows.</summary>
        public bool HasSphere => (native.flags & Abi.StateSphere) != 0;

        /// <summary>Sends the publisher a receipt for every frame shown. Takes effect with Connect.</summary>
        public bool Receipts
        {
            get => receipts;
            set => receipts = value;
        }

        /// <summary>Plays the session's sound.</summary>
        public bool Sound
        {
            get => sound;
            set => sound = value;
        }

        /// <summary>Volume of the session's sound, 0 to 1.</summary>
        public float Volume
        {
            get => volume;
            set => volume = Mathf.Clamp(value, 0, 1);
        }

        /// <summary>The session's sound tracks that are being played.</summary>
        public IReadOnlyList<HolocastSound> Sounds => sounds.List;

        /// <summary>
        /// Fetches the relay's certificate hash over plain HTTP. For development only. Takes effect with
        /// Connect.
        /// </summary>
        public bool Insecure
        {
            get => insecure;
            set => insecure = value;
        }

        /// <summary>
        /// Decodes 360° video with the platform's decoder, or with OpenH264 if that fails. Takes effect with
        /// Connect.
        /// </summary>
        public bool PlatformVideo
        {
            get => platformVideo;
            set => platformVideo = value;
        }

        /// <summary>Raised on the main thread with the new state.</summary>
        public UnityEvent<HolocastState> StateChanged => stateChanged;

        /// <summary>Raised on the main thread when cameras are added, removed or moved.</summary>
        public event Action CatalogChanged;

        /// <summary>Raised on the main thread when Sessions changes.</summary>
        public event Action SessionsChanged;

        internal Client Client => client;

        // True while a HolocastSphere shows the session's 360° video.
        internal bool ShowsSphere { get; set; }

        /// <summary>Increments with every connection. State kept for an older one is invalid.</summary>
        internal int Generation { get; private set; }

        /// <summary>Connects to Url, ending the current connection.</summary>
        public void Connect()
        {
            Close();
            if (!HolocastAddress.TryParse(url, out address))
            {
                Fail("“" + url + "” is not a session address: use the form moqt://host:4443/demo.");
                return;
            }
            string hash = certificateHash.Length > 0 ? certificateHash : address.CertificateHash;
            address = new HolocastAddress(address.Url, hash);
            try
            {
                uint flags = (receipts ? 0 : Abi.NoReceipts) | (insecure ? Abi.Insecure : 0)
                    | (platformVideo ? Abi.PlatformVideo : 0);
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

        /// <summary>Disconnects from the session.</summary>
        public void Disconnect()
        {
            Close();
            Enter(HolocastState.Disconnected);
        }

        /// <summary>Statistics over all cameras. Returns false until a camera has delivered a frame.</summary>
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

        /// <summary>Statistics of the 360° video. Returns false until it has delivered a picture.</summary>
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

        // Sets a component's notice, for example about an oversized frame; empty clears it.
        internal void SetNotice(object from, string sentence)
        {
            notices.TryGetValue(from, out string before);
            if ((before ?? "") == sentence)
            {
                return;
            }
            if (sentence.Length > 0)
            {
                notices[from] = sentence;
            }
            else
            {
                notices.Remove(from);
            }
            Tell();
        }

        void OnEnable()
        {
            if (connectOnEnable && url.Length > 0)
            {
                Connect();
            }
        }

        void OnDisable()
        {
            Disconnect();
        }

        // HoloLens keeps suspended apps running for a while, so disconnect instead of receiving unseen
        // frames.
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
                Debug.LogWarning("Holocast: " + detail);
            }
            if (now.catalogVersion != before.catalogVersion)
            {
                catalog.Read(client);
                CatalogChanged?.Invoke();
                sounds.Changed();
            }
            sounds.Update(this);
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
            sounds.Clear();
            client?.Dispose();
            client = null;
            native = default;
            detail = "";
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
            Message = Messages.For(State, address, detail, native.flags);
            if (Message.Length == 0 && notices.Count > 0)
            {
                Message = string.Join(" ", notices.Values);
            }
        }
    }
}
