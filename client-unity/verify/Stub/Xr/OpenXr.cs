// Stub of the Microsoft.MixedReality.OpenXR 1.9+ members that the Mrtk assembly uses.
using System;
using System.Collections.Generic;
using System.Threading.Tasks;
using UnityEngine;
using UnityEngine.XR.ARFoundation;
using UnityEngine.XR.ARSubsystems;

namespace Microsoft.MixedReality.OpenXR
{
    public class XRAnchorStore
    {
        public TrackableId LoadAnchor(string name) => default;
        public bool TryPersistAnchor(TrackableId trackableId, string name) => false;
        public void UnpersistAnchor(string name)
        {
        }
    }

    public class ARMarker : MonoBehaviour
    {
        public TrackableId trackableId => default;
    }

    public struct ARMarkersChangedEventArgs
    {
        public IReadOnlyList<ARMarker> added => null;
    }

    public sealed class ARMarkerManager : MonoBehaviour
    {
        public event Action<ARMarkersChangedEventArgs> markersChanged
        {
            add { }
            remove { }
        }

        public string GetDecodedString(TrackableId trackableId) => null;
    }
}

namespace Microsoft.MixedReality.OpenXR.ARFoundation
{
    public static class AnchorManagerExtensions
    {
        public static Task<XRAnchorStore> LoadAnchorStoreAsync(this ARAnchorManager anchorManager) =>
            Task.FromResult<XRAnchorStore>(null);
    }
}
