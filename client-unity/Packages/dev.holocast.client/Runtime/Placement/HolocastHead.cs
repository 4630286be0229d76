using UnityEngine;
using UnityEngine.XR;

namespace Holocast
{
    /// <summary>
    /// Moves a camera with the user's head, for scenes without a camera rig (MRTK3 provides one). Without a
    /// headset the camera does not move.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Head")]
    [RequireComponent(typeof(Camera))]
    [DefaultExecutionOrder(-200)]
    public sealed class HolocastHead : MonoBehaviour
    {
        void OnEnable()
        {
            Application.onBeforeRender += Track;
        }

        void OnDisable()
        {
            Application.onBeforeRender -= Track;
        }

        void Update()
        {
            Track();
        }

        // Update the pose again right before rendering, to reduce latency.
        [BeforeRenderOrder(-30000)]
        void Track()
        {
            InputDevice device = InputDevices.GetDeviceAtXRNode(XRNode.CenterEye);
            if (device.isValid
                && device.TryGetFeatureValue(CommonUsages.centerEyePosition, out Vector3 position)
                && device.TryGetFeatureValue(CommonUsages.centerEyeRotation, out Quaternion rotation))
            {
                transform.localPosition = position;
                transform.localRotation = rotation;
            }
        }
    }
}
