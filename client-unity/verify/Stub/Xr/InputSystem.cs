// Stub of the Unity.InputSystem 1.x members that the samples use.
using UnityEngine.InputSystem.Controls;

namespace UnityEngine.InputSystem
{
    public abstract class InputControl<TValue>
    {
        public TValue ReadValue() => default;
    }

    public class Pointer
    {
        public Vector2Control position { get; } = new Vector2Control();
    }

    public class Mouse : Pointer
    {
        public static Mouse current => null;
        public DeltaControl scroll { get; } = new DeltaControl();
        public ButtonControl rightButton { get; } = new ButtonControl();
    }
}

namespace UnityEngine.InputSystem.Controls
{
    public class Vector2Control : InputControl<Vector2>
    {
    }

    public class DeltaControl : Vector2Control
    {
    }

    public class ButtonControl : InputControl<float>
    {
        public bool isPressed => false;
    }
}
