using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    /// <summary>
    /// Controls playback of a replayed recording, for this viewer only. Add it to the HolocastSession's
    /// object or below it.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Playback")]
    [DefaultExecutionOrder(-90)]
    public sealed class HolocastPlayback : MonoBehaviour
    {
        [SerializeField, Tooltip("Empty: the session on this object or its parents")]
        HolocastSession session;

        HcPlayback native;

        /// <summary>The session whose recording is controlled.</summary>
        public HolocastSession Session
        {
            get => session;
            set => session = value;
        }

        /// <summary>True if the session replays a recording that supports seeking.</summary>
        public bool Available => (native.flags & Abi.PlaybackAvailable) != 0;

        /// <summary>False while paused.</summary>
        public bool Playing => (native.flags & Abi.PlaybackPlaying) != 0;

        /// <summary>True while following the replay shared by all viewers.</summary>
        public bool IsLive => (native.flags & Abi.PlaybackIsLive) != 0;

        /// <summary>True while playback waits for data.</summary>
        public bool Waiting => (native.flags & Abi.PlaybackWaiting) != 0;

        /// <summary>Length of the recording, seconds; 0 if there is none.</summary>
        public double Duration => native.durationMs / 1000;

        /// <summary>Position in the recording, seconds.</summary>
        public double Position => native.positionMs / 1000;

        /// <summary>Resumes playback; at the end, restarts from the beginning.</summary>
        public void Play()
        {
            Act(HcPlaybackAction.Play, 0);
        }

        /// <summary>Pauses playback.</summary>
        public void Pause()
        {
            Act(HcPlaybackAction.Pause, 0);
        }

        /// <summary>Pauses or resumes.</summary>
        public void Toggle()
        {
            Act(Playing ? HcPlaybackAction.Pause : HcPlaybackAction.Play, 0);
        }

        /// <summary>Seeks to a position, seconds from the start of the recording.</summary>
        public void Seek(double seconds)
        {
            Act(HcPlaybackAction.Seek, System.Math.Max(0, System.Math.Min(seconds, Duration)) * 1000);
        }

        /// <summary>Returns to the replay shared by all viewers.</summary>
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
            // On an error, such as a session without a recording, keep the last known state.
            if (client.Playback(action, positionMs, out HcPlayback p))
            {
                native = p;
            }
        }
    }
}
