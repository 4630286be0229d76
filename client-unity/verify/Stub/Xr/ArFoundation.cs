// Stub of the Unity.XR.ARFoundation and Unity.XR.ARSubsystems 5.x members that the Mrtk assembly
// uses.
using System;

namespace UnityEngine.XR.ARSubsystems
{
    public struct TrackableId : IEquatable<TrackableId>
    {
        public static TrackableId invalidId => default;
        public bool Equals(TrackableId other) => true;
        public override bool Equals(object o) => o is TrackableId;
        public override int GetHashCode() => 0;
        public static bool operator ==(TrackableId a, TrackableId b) => a.Equals(b);
        public static bool operator !=(TrackableId a, TrackableId b) => !a.Equals(b);
    }

    public enum TrackingState
    {
        None = 0,
        Limited = 1,
        Tracking = 2,
    }

    public class XRAnchorSubsystem
    {
        public bool running => false;
    }
}

namespace UnityEngine.XR.ARFoundation
{
    using UnityEngine.XR.ARSubsystems;

    public sealed class ARAnchor : MonoBehaviour
    {
        public TrackableId trackableId => default;
        public TrackingState trackingState => default;
    }

    public sealed class ARAnchorManager : MonoBehaviour
    {
        public XRAnchorSubsystem subsystem => null;
        public ARAnchor GetAnchor(TrackableId trackableId) => null;
    }
}
