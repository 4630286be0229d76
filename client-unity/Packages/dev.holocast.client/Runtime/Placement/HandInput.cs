using System.Collections.Generic;
using UnityEngine;
using UnityEngine.XR;

namespace Holocast
{
    // A hand or controller, in world coordinates.
    struct Hand
    {
        public bool Pressed;
        public Vector3 Position;
        public Quaternion Rotation;
        public Ray Pointer;
    }

    // Input from the headset's hands or controllers.
    static class HandInput
    {
        // Usages that Unity's OpenXR plugin adds: the aim pose, and the axes of its Hand Interaction
        // Profile (XR_EXT_hand_interaction), which has none of the buttons in CommonUsages.
        static readonly InputFeatureUsage<Vector3> AimPosition = new InputFeatureUsage<Vector3>("PointerPosition");
        static readonly InputFeatureUsage<Quaternion> AimRotation =
            new InputFeatureUsage<Quaternion>("PointerRotation");
        static readonly InputFeatureUsage<float>[] Axes =
        {
            new InputFeatureUsage<float>("PinchValue"), new InputFeatureUsage<float>("GraspValue"),
            new InputFeatureUsage<float>("PointerActivateValue"),
        };

        // An axis counts as pressed above the first value and as released at or below the second.
        const float Press = 0.7f;
        const float Release = 0.4f;

        static readonly List<InputDevice> Devices = new List<InputDevice>();
        static readonly bool[] Held = new bool[2];

        // Requests Android XR's hand tracking permission, which does not exist on Quest.
        public static void RequestPermission()
        {
#if UNITY_ANDROID && !UNITY_EDITOR
            const string hands = "android.permission.HAND_TRACKING";
            if (!UnityEngine.Android.Permission.HasUserAuthorizedPermission(hands))
            {
                UnityEngine.Android.Permission.RequestUserPermission(hands);
            }
#endif
        }

        // True while a hand pinches or grasps, or a controller's trigger is pressed.
        public static bool Pressed(XRNode node)
        {
            InputDevices.GetDevicesAtXRNode(node, Devices);
            bool pressed = false;
            float threshold = Held[node == XRNode.LeftHand ? 0 : 1] ? Release : Press;
            for (int i = 0; i < Devices.Count; i++)
            {
                pressed |= Devices[i].TryGetFeatureValue(CommonUsages.triggerButton, out bool trigger) && trigger
                    || Devices[i].TryGetFeatureValue(CommonUsages.primaryButton, out bool primary) && primary;
                for (int k = 0; k < Axes.Length; k++)
                {
                    pressed |= Devices[i].TryGetFeatureValue(Axes[k], out float value) && value > threshold;
                }
            }
            Held[node == XRNode.LeftHand ? 0 : 1] = pressed;
            return pressed;
        }

        // Gets a hand's state. Returns false if its pose is unknown. head: the main camera, whose parent is
        // the devices' tracking space.
        public static bool TryGet(XRNode node, Transform head, out Hand hand)
        {
            hand = new Hand { Pressed = Pressed(node) };
            for (int i = 0; i < Devices.Count; i++)
            {
                if (!Devices[i].TryGetFeatureValue(CommonUsages.devicePosition, out Vector3 at)
                    || !Devices[i].TryGetFeatureValue(CommonUsages.deviceRotation, out Quaternion rotation))
                {
                    continue;
                }
                bool aims = Devices[i].TryGetFeatureValue(AimPosition, out Vector3 from);
                aims &= Devices[i].TryGetFeatureValue(AimRotation, out Quaternion aim);
                Transform space = head != null ? head.parent : null;
                if (space != null)
                {
                    at = space.TransformPoint(at);
                    rotation = space.rotation * rotation;
                    from = space.TransformPoint(from);
                    aim = space.rotation * aim;
                }
                hand.Position = at;
                hand.Rotation = rotation;
                // Without an aim pose, point from the eye through the hand.
                hand.Pointer = aims ? new Ray(from, aim * Vector3.forward)
                    : head != null ? new Ray(head.position, at - head.position)
                    : new Ray(at, rotation * Vector3.forward);
                return true;
            }
            return false;
        }
    }
}
