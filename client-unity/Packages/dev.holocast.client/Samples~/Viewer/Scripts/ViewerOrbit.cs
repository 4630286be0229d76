using UnityEngine;
#if HOLOCAST_INPUT_SYSTEM && !ENABLE_LEGACY_INPUT_MANAGER
using UnityEngine.InputSystem;
#endif

namespace Holocast.Samples
{
    /// <summary>Orbits a camera around the subject: right mouse button turns, the wheel zooms.</summary>
    [RequireComponent(typeof(Camera))]
    public sealed class ViewerOrbit : MonoBehaviour
    {
        [SerializeField]
        HolocastPoints points;

        Vector3 mouse;

        void Update()
        {
            ReadMouse(out Vector3 at, out bool held, out float wheel);
            Vector3 moved = at - mouse;
            mouse = at;
            if (points == null || !points.TryGetSubject(out Vector3 middle, out _))
            {
                return;
            }
            Vector3 from = transform.position - middle;
            if (held)
            {
                from = Quaternion.AngleAxis(moved.x * 0.3f, Vector3.up) * Quaternion.AngleAxis(-moved.y * 0.3f,
                    transform.right) * from;
            }
            from *= Mathf.Exp(-0.1f * wheel);
            if (held || wheel != 0)
            {
                transform.position = middle + from;
                transform.rotation = Quaternion.LookRotation(-from, Vector3.up);
            }
        }

        // Mouse position in pixels, right button and wheel notches, from whichever input system the
        // project uses.
        static void ReadMouse(out Vector3 at, out bool held, out float wheel)
        {
            at = Vector3.zero;
            held = false;
            wheel = 0;
#if ENABLE_LEGACY_INPUT_MANAGER
            at = Input.mousePosition;
            held = Input.GetMouseButton(1);
            wheel = Input.mouseScrollDelta.y;
#elif HOLOCAST_INPUT_SYSTEM
            if (Mouse.current != null)
            {
                at = Mouse.current.position.ReadValue();
                held = Mouse.current.rightButton.isPressed;
                wheel = Mathf.Clamp(Mouse.current.scroll.ReadValue().y, -1, 1);
            }
#endif
        }
    }
}
