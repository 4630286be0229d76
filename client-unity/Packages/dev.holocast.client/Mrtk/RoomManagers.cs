#if HOLOCAST_ARFOUNDATION
using Unity.XR.CoreUtils;
using UnityEngine;
using UnityEngine.XR.ARFoundation;

namespace Holocast
{
    // Finds AR Foundation's managers and adds missing ones, since anchors and QR codes do nothing
    // without them.
    static class RoomManagers
    {
        // Seconds within which a manager's subsystem must be running. A headset starts it within a few
        // frames.
        public const float Patience = 10;

        public static T Require<T>() where T : Component
        {
            var manager = Object.FindAnyObjectByType<T>();
            if (manager != null)
            {
                return manager;
            }
            RequireSession();
            XROrigin origin = Object.FindAnyObjectByType<XROrigin>();
            return (origin != null ? origin : NewOrigin()).gameObject.AddComponent<T>();
        }

        public static void RequireSession()
        {
            if (Object.FindAnyObjectByType<ARSession>() == null)
            {
                new GameObject("AR Session").AddComponent<ARSession>();
            }
        }

        // Creates an origin at the camera's tracking space. The camera itself is not changed.
        static XROrigin NewOrigin()
        {
            var o = new GameObject("XR Origin");
            o.SetActive(false); // its Awake reads the properties below
            var floor = new GameObject("Floor");
            floor.transform.SetParent(o.transform, false);
            Camera camera = Camera.main;
            if (camera != null)
            {
                o.transform.SetParent(camera.transform.parent, false);
            }
            var origin = o.AddComponent<XROrigin>();
            origin.Camera = camera;
            origin.CameraFloorOffsetObject = floor;
            o.SetActive(true);
            return origin;
        }
    }
}
#endif
