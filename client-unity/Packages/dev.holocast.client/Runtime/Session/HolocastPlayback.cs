using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    /// <summary>
    /// Moves about in the recording that a session replays, for this viewer alone. Add it to the
    /// HolocastSession's object or below it.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Playback")]
    [DefaultExecutionOrder(-90)]
    public sealed class HolocastPlayback : MonoBehaviour
    {
        [SerializeField, Tooltip("Empty: the one on this object or above it")]
        HolocastSession session;

        HcPlayback native;

        public HolocastSession Session
        {
            get => session;
            set => session = value;
        }

        /// <summary>Whether there is a recording to move about in.</summary>
        public bool Available => (native.flags & Abi.PlaybackAvailable) != 0;

        public bool Playing => (native.flags & Abi.PlaybackPlaying) != 0;

        /// <summary>What is shown is the replay that all viewers see.</summary>
        public bool IsLive => (native.flags & Abi.PlaybackIsLive) != 0;

        /// <summary>What is due has not arrived yet.</summary>
        public bool Waiting => (native.flags & Abi.PlaybackWaiting) != 0;

        /// <summary>Length of the recording, seconds; 0 without one.</summary>
        public double Duration => native.durationMs / 1000;

        /// <summary>Seconds from the recording's beginning.</summary>
        public double Position => native.positionMs / 1000;

        public void Play()
        {
            Act(HcPlaybackAction.Play, 0);
        }

        public void Pause()
        {
            Act(HcPlaybackAction.Pause, 0);
        }

        /// <summary>Pauses what plays, and the other way about.</summary>
        public void Toggle()
        {
            Act(Playing ? HcPlaybackAction.Pause : HcPlaybackAction.Play, 0);
        }

        /// <summary>Goes to a place of the recording, seconds from its beginning.</summary>
        public void Seek(double seconds)
        {
            Act(HcPlaybackAction.Seek, System.Math.Max(0, System.Math.Min(seconds, Duration)) * 1000);
        }

        /// <summary>Goes back to what all viewers see.</summary>
        public void GoLive()
        {
            Act(HcPlaybackAction.Live, 0);
        }

        void OnEnable()
        {
            if (session == null)
            {
                session = GetComponentInParent<HolocastSession>();
            }
        }

        void Update()
        {
            Act(HcPlaybackAction.Query, 0);
        }

        void Act(HcPlaybackAction action, double positionMs)
        {
            Client client = session != null ? session.Client : null;
            if (client == null)
            {
                native = default;
                return;
            }
            // A refusal, as without a recording, leaves what is known.
            if (client.Playback(action, positionMs, out HcPlayback p))
            {
                native = p;
            }
        }
    }
}
