// Stub of the Unity.XR.ARFoundation, Unity.XR.ARSubsystems 5.x and Unity.XR.CoreUtils 2.x members that
// the Mrtk assembly uses. Tests set a headset's reports.
using System;
using System.Collections.Generic;

namespace UnityEngine.XR.ARSubsystems
{
    public struct TrackableId : IEquatable<TrackableId>
    {
        readonly ulong id;

        public TrackableId(ulong subId1, ulong subId2)
        {
            id = subId1 ^ subId2;
        }

        public static TrackableId invalidId => default;
        public bool Equals(TrackableId other) => id == other.id;
        public override bool Equals(object o) => o is TrackableId t && Equals(t);
        public override int GetHashCode() => id.GetHashCode();
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
        public bool running { get; set; }
    }
}

namespace Unity.XR.CoreUtils
{
    using UnityEngine;

    public class XROrigin : MonoBehaviour
    {
        public Camera Camera { get; set; }
        public GameObject CameraFloorOffsetObject { get; set; }

        void Awake()
        {
            if (CameraFloorOffsetObject == null)
            {
                Debug.LogWarning("No Camera Floor Offset GameObject specified for XR Origin.");
            }
        }
    }
}

namespace UnityEngine.XR.ARFoundation
{
    using Unity.XR.CoreUtils;
    using UnityEngine.XR.ARSubsystems;

    public sealed class ARSession : MonoBehaviour
    {
    }

    [RequireComponent(typeof(Camera))]
    public sealed class ARCameraManager : MonoBehaviour
    {
    }

    public sealed class ARAnchor : MonoBehaviour
    {
        static ulong last;

        public TrackableId trackableId { get; set; } = new TrackableId(++last, 0);
        public TrackingState trackingState { get; set; }
    }

    [RequireComponent(typeof(XROrigin))]
    public sealed class ARAnchorManager : MonoBehaviour
    {
        // Shared by all managers, since a headset has only one.
        public static readonly XRAnchorSubsystem Stub = new XRAnchorSubsystem();
        public static readonly Dictionary<TrackableId, ARAnchor> Loaded = new Dictionary<TrackableId, ARAnchor>();

        public XRAnchorSubsystem subsystem => Stub;
        public ARAnchor GetAnchor(TrackableId trackableId) =>
            Loaded.TryGetValue(trackableId, out ARAnchor a) ? a : null;
    }
}
