using UnityEngine;
#if HOLOCAST_OPENXR
using Microsoft.MixedReality.OpenXR;
#endif

namespace Holocast
{
    /// <summary>
    /// Joins the session whose address (moqt://…, a web viewer link or a pairing link) is in a QR code that comes into view.
    /// Requires an ARMarkerManager on the XR origin and the WebCam capability. Does nothing if the project
    /// lacks Microsoft's OpenXR plugin.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Pairing (QR code, OpenXR)")]
    [RequireComponent(typeof(HolocastBrowser))]
    public sealed class HolocastPairing : MonoBehaviour
    {
#if HOLOCAST_OPENXR
        HolocastBrowser browser;
        ARMarkerManager markers;

        void OnEnable()
        {
            browser = GetComponent<HolocastBrowser>();
            markers = FindAnyObjectByType<ARMarkerManager>();
            if (markers != null)
            {
                markers.markersChanged += OnMarkersChanged;
            }
        }

        void OnDisable()
        {
            if (markers != null)
            {
                markers.markersChanged -= OnMarkersChanged;
            }
        }

        // Only newly seen codes count: a code that stays in view must not override a session chosen
        // later.
        void OnMarkersChanged(ARMarkersChangedEventArgs changed)
        {
            foreach (ARMarker marker in changed.added)
            {
                if (browser.JoinText(markers.GetDecodedString(marker.trackableId)))
                {
                    return;
                }
            }
        }
#endif
    }
}
