using UnityEngine;
#if HOLOCAST_OPENXR
using Microsoft.MixedReality.OpenXR;
#endif

namespace Holocast
{
    /// <summary>
    /// Joins the session whose address a QR code shows that the user looks at: moqt://…, or a link
    /// of the web viewer. The scene needs an ARMarkerManager on its XR origin, the app the WebCam
    /// capability. Without Microsoft's OpenXR plugin in the project it does nothing.
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

        // Only codes that come into view: one that hangs on the wall does not call the user back
        // from a session that was chosen since.
        void OnMarkersChanged(ARMarkersChangedEventArgs changed)
        {
            foreach (ARMarker marker in changed.added)
            {
                if (HolocastAddress.TryParse(markers.GetDecodedString(marker.trackableId), out HolocastAddress address)
                    && address.Session.Length > 0)
                {
                    browser.Join(address);
                    return;
                }
            }
        }
#endif
    }
}
