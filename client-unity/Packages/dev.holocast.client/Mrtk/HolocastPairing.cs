using System.Collections.Generic;
using UnityEngine;
#if HOLOCAST_OPENXR
using Microsoft.MixedReality.OpenXR;
using UnityEngine.XR.ARSubsystems;
#endif

namespace Holocast
{
    /// <summary>
    /// Joins the session whose address (moqt://…, a web viewer link or a pairing link) is in a QR code that comes
    /// into view. Requires the WebCam capability; adds an ARMarkerManager if the scene has none. Does nothing if
    /// the project lacks Microsoft's OpenXR plugin.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Pairing (QR code, OpenXR)")]
    [RequireComponent(typeof(HolocastBrowser))]
    public sealed class HolocastPairing : MonoBehaviour
    {
#if HOLOCAST_OPENXR
        // A code counts again after this many seconds out of view.
        const float OutOfView = 5;

        readonly Dictionary<TrackableId, float> seen = new Dictionary<TrackableId, float>();
        HolocastBrowser browser;
        ARMarkerManager markers;
        float since;

        void OnEnable()
        {
            browser = GetComponent<HolocastBrowser>();
            markers = RoomManagers.Require<ARMarkerManager>();
            markers.markersChanged += OnMarkersChanged;
            since = Time.realtimeSinceStartup;
            seen.Clear();
        }

        void OnDisable()
        {
            markers.markersChanged -= OnMarkersChanged;
            Tell("");
        }

        void Update()
        {
            bool running = markers.subsystem != null && markers.subsystem.running;
            Tell(running || Time.realtimeSinceStartup - since < RoomManagers.Patience ? ""
                : "QR codes are not read: enable the Microsoft HoloLens feature group under OpenXR.");
        }

        void Tell(string sentence)
        {
            if (browser.Session != null)
            {
                browser.Session.SetNotice(this, sentence);
            }
        }

        // The headset remembers codes until it restarts, and reports them first as added, later as
        // updated when it sees them. A code counts only when it comes into view, because one that stays
        // in view must not override a session chosen later.
        void OnMarkersChanged(ARMarkersChangedEventArgs changed)
        {
            if (!Join(changed.added))
            {
                Join(changed.updated);
            }
        }

        bool Join(IReadOnlyList<ARMarker> changed)
        {
            foreach (ARMarker marker in changed)
            {
                if (marker.lastSeenTime >= since && IsNew(marker)
                    && browser.JoinText(markers.GetDecodedString(marker.trackableId)))
                {
                    return true;
                }
            }
            return false;
        }

        bool IsNew(ARMarker marker)
        {
            bool known = seen.TryGetValue(marker.trackableId, out float before);
            seen[marker.trackableId] = marker.lastSeenTime;
            return !known || marker.lastSeenTime - before > OutOfView;
        }
#endif
    }
}
