using System;
using System.Collections.Generic;

namespace UnityEngine.XR
{
    public enum XRNode
    {
        LeftEye = 0,
        RightEye = 1,
        CenterEye = 2,
        Head = 3,
        LeftHand = 4,
        RightHand = 5,
    }

    public struct InputFeatureUsage<T>
    {
        internal readonly int id;

        internal InputFeatureUsage(int id)
        {
            this.id = id;
        }
    }

    public static class CommonUsages
    {
        public static InputFeatureUsage<bool> primaryButton = new InputFeatureUsage<bool>(1);
        public static InputFeatureUsage<bool> triggerButton = new InputFeatureUsage<bool>(2);
        public static InputFeatureUsage<Vector3> devicePosition = new InputFeatureUsage<Vector3>(3);
        public static InputFeatureUsage<Vector3> centerEyePosition = new InputFeatureUsage<Vector3>(4);
        public static InputFeatureUsage<Quaternion> deviceRotation = new InputFeatureUsage<Quaternion>(5);
        public static InputFeatureUsage<Quaternion> centerEyeRotation = new InputFeatureUsage<Quaternion>(6);
    }

    // State of a hand or head, set by tests.
    public sealed class StubDevice
    {
        public Vector3 Position;
        public Quaternion Rotation = Quaternion.identity;
        public bool Pressed;
    }

    public struct InputDevice
    {
        internal StubDevice stub;

        public bool isValid => stub != null;

        public bool TryGetFeatureValue(InputFeatureUsage<bool> usage, out bool value)
        {
            value = stub.Pressed;
            return usage.id == CommonUsages.triggerButton.id;
        }

        public bool TryGetFeatureValue(InputFeatureUsage<Vector3> usage, out Vector3 value)
        {
            value = stub.Position;
            return true;
        }

        public bool TryGetFeatureValue(InputFeatureUsage<Quaternion> usage, out Quaternion value)
        {
            value = stub.Rotation;
            return true;
        }
    }

    public static class InputDevices
    {
        public static readonly StubDevice[] Stub = new StubDevice[6];

        public static InputDevice GetDeviceAtXRNode(XRNode node) => new InputDevice { stub = Stub[(int)node] };
    }

    public static class XRDevice
    {
        public static float refreshRate => 0;
    }

    public static class XRSettings
    {
        public static bool isDeviceActive => false;
    }
}
