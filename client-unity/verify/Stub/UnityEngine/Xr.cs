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
        internal readonly string name;

        public InputFeatureUsage(string usageName)
        {
            name = usageName;
        }
    }

    public static class CommonUsages
    {
        public static InputFeatureUsage<bool> primaryButton = new InputFeatureUsage<bool>("PrimaryButton");
        public static InputFeatureUsage<bool> triggerButton = new InputFeatureUsage<bool>("TriggerButton");
        public static InputFeatureUsage<Vector3> devicePosition = new InputFeatureUsage<Vector3>("DevicePosition");
        public static InputFeatureUsage<Vector3> centerEyePosition =
            new InputFeatureUsage<Vector3>("CenterEyePosition");
        public static InputFeatureUsage<Quaternion> deviceRotation =
            new InputFeatureUsage<Quaternion>("DeviceRotation");
        public static InputFeatureUsage<Quaternion> centerEyeRotation =
            new InputFeatureUsage<Quaternion>("CenterEyeRotation");
    }

    // State of a hand or head, set by tests.
    public sealed class StubDevice
    {
        public Vector3 Position;
        public Quaternion Rotation = Quaternion.identity;
        public bool Pressed;

        // Axes by usage. A device that has any has no buttons.
        public readonly Dictionary<string, float> Axes = new Dictionary<string, float>();

        // Null: the device has no aim.
        public Ray? Aim;
    }

    public struct InputDevice
    {
        internal StubDevice stub;

        public bool isValid => stub != null;

        public bool TryGetFeatureValue(InputFeatureUsage<bool> usage, out bool value)
        {
            value = stub.Pressed;
            return usage.name == "TriggerButton" && stub.Axes.Count == 0;
        }

        public bool TryGetFeatureValue(InputFeatureUsage<float> usage, out float value)
        {
            return stub.Axes.TryGetValue(usage.name, out value);
        }

        public bool TryGetFeatureValue(InputFeatureUsage<Vector3> usage, out Vector3 value)
        {
            bool aim = usage.name == "PointerPosition";
            value = aim ? stub.Aim.GetValueOrDefault().origin : stub.Position;
            return !aim || stub.Aim.HasValue;
        }

        public bool TryGetFeatureValue(InputFeatureUsage<Quaternion> usage, out Quaternion value)
        {
            bool aim = usage.name == "PointerRotation";
            value = !aim ? stub.Rotation
                : stub.Aim.HasValue ? Quaternion.LookRotation(stub.Aim.Value.direction, Vector3.up)
                : Quaternion.identity;
            return !aim || stub.Aim.HasValue;
        }
    }

    public static class InputDevices
    {
        public static readonly StubDevice[] Stub = new StubDevice[6];

        public static InputDevice GetDeviceAtXRNode(XRNode node) => new InputDevice { stub = Stub[(int)node] };

        public static void GetDevicesAtXRNode(XRNode node, List<InputDevice> inputDevices)
        {
            inputDevices.Clear();
            if (Stub[(int)node] != null)
            {
                inputDevices.Add(new InputDevice { stub = Stub[(int)node] });
            }
        }
    }

    public class XRDisplaySubsystem : IntegratedSubsystem
    {
        // Refresh rate of the headset, Hz; 0 for none.
        public static float Stub;

        public bool TryGetDisplayRefreshRate(out float displayRefreshRate)
        {
            displayRefreshRate = Stub;
            return Stub > 0;
        }
    }
}

namespace UnityEngine
{
    public class IntegratedSubsystem
    {
        public bool running => true;
    }

    public static class SubsystemManager
    {
        static readonly XR.XRDisplaySubsystem Display = new XR.XRDisplaySubsystem();

        public static void GetSubsystems<T>(List<T> subsystems)
        {
            subsystems.Clear();
            if (XR.XRDisplaySubsystem.Stub > 0 && Display is T display)
            {
                subsystems.Add(display);
            }
        }
    }
}

namespace UnityEngine.Android
{
    public struct Permission
    {
        public static bool HasUserAuthorizedPermission(string permission) => true;

        public static void RequestUserPermission(string permission)
        {
        }
    }
}
