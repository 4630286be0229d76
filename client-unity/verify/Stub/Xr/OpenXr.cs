// Stub of the Microsoft.MixedReality.OpenXR 1.9+ members that the Mrtk assembly uses.
using System;
using System.Collections.Generic;
using System.Threading.Tasks;
using Unity.XR.CoreUtils;
using UnityEngine;
using UnityEngine.XR.ARFoundation;
using UnityEngine.XR.ARSubsystems;

namespace Microsoft.MixedReality.OpenXR.ARSubsystems
{
    public class XRMarkerSubsystem
    {
        public bool running { get; set; }
    }
}

namespace Microsoft.MixedReality.OpenXR
{
    using Microsoft.MixedReality.OpenXR.ARSubsystems;

    public class XRAnchorStore
    {
        public readonly Dictionary<string, TrackableId> Stub = new Dictionary<string, TrackableId>();

        public TrackableId LoadAnchor(string name) => Stub.TryGetValue(name, out TrackableId id) ? id : default;
        public bool TryPersistAnchor(TrackableId trackableId, string name)
        {
            Stub[name] = trackableId;
            return true;
        }

        public void UnpersistAnchor(string name) => Stub.Remove(name);
    }

    public class ARMarker : MonoBehaviour
    {
        public TrackableId trackableId { get; set; }
        public float lastSeenTime { get; set; }
        public string Stub { get; set; }
    }

    public struct ARMarkersChangedEventArgs
    {
        public ARMarkersChangedEventArgs(IReadOnlyList<ARMarker> added, IReadOnlyList<ARMarker> updated)
        {
            this.added = added;
            this.updated = updated;
        }

        public IReadOnlyList<ARMarker> added { get; }
        public IReadOnlyList<ARMarker> updated { get; }
    }

    [RequireComponent(typeof(XROrigin))]
    public sealed class ARMarkerManager : MonoBehaviour
    {
        readonly Dictionary<TrackableId, string> texts = new Dictionary<TrackableId, string>();

        public event Action<ARMarkersChangedEventArgs> markersChanged;

        public XRMarkerSubsystem subsystem { get; } = new XRMarkerSubsystem();

        public string GetDecodedString(TrackableId trackableId) => texts[trackableId];

        public void Report(ARMarker[] added, ARMarker[] updated)
        {
            foreach (ARMarker m in added)
            {
                texts[m.trackableId] = m.Stub;
            }
            markersChanged?.Invoke(new ARMarkersChangedEventArgs(added, updated));
        }
    }
}

namespace Microsoft.MixedReality.OpenXR.ARFoundation
{
    public static class AnchorManagerExtensions
    {
        public static readonly XRAnchorStore Stub = new XRAnchorStore();

        public static Task<XRAnchorStore> LoadAnchorStoreAsync(this ARAnchorManager anchorManager) =>
            Task.FromResult(Stub);
    }
}
