using UnityEngine;
using UnityEngine.XR;

namespace Holocast
{
    // Hands or controllers of the headset.
    static class HandInput
    {
        // A pinch of a hand, or a controller's trigger; where it is and how it is turned.
        public static bool Pressed(XRNode node, out Vector3 at, out Quaternion turned)
        {
            at = Vector3.zero;
            turned = Quaternion.identity;
            InputDevice device = InputDevices.GetDeviceAtXRNode(node);
            if (!device.isValid
                || !device.TryGetFeatureValue(CommonUsages.devicePosition, out at)
                || !device.TryGetFeatureValue(CommonUsages.deviceRotation, out turned))
            {
                return false;
            }
            return device.TryGetFeatureValue(CommonUsages.triggerButton, out bool trigger) && trigger
                || device.TryGetFeatureValue(CommonUsages.primaryButton, out bool primary) && primary;
        }
    }
}
