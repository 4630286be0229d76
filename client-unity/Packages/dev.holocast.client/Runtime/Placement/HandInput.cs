using UnityEngine;
using UnityEngine.XR;

namespace Holocast
{
    // Input from the headset's hands or controllers.
    static class HandInput
    {
        // Reports a hand's pinch or a controller's trigger, with the hand's position and rotation.
        public static bool Pressed(XRNode node, out Vector3 at, out Quaternion rotation)
        {
            at = Vector3.zero;
            rotation = Quaternion.identity;
            InputDevice device = InputDevices.GetDeviceAtXRNode(node);
            if (!device.isValid
                || !device.TryGetFeatureValue(CommonUsages.devicePosition, out at)
                || !device.TryGetFeatureValue(CommonUsages.deviceRotation, out rotation))
            {
                return false;
            }
            return device.TryGetFeatureValue(CommonUsages.triggerButton, out bool trigger) && trigger
                || device.TryGetFeatureValue(CommonUsages.primaryButton, out bool primary) && primary;
        }
    }
}
