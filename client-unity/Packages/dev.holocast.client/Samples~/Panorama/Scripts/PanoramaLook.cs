using UnityEngine;
#if HOLOCAST_INPUT_SYSTEM && !ENABLE_LEGACY_INPUT_MANAGER
using UnityEngine.InputSystem;
#endif

namespace Holocast.Samples
{
    /// <summary>
    /// Looks around with the mouse while the right button is held. With a headset, the camera follows the
    /// head.
    /// </summary>
    [RequireComponent(typeof(Camera))]
    public sealed class PanoramaLook : MonoBehaviour
    {
        Vector3 mouse;
        float yaw, pitch;

        void Update()
        {
            ReadMouse(out Vector3 at, out bool held);
            Vector3 moved = at - mouse;
            mouse = at;
            if (held)
            {
                yaw -= moved.x * 0.15f;
                pitch = Mathf.Clamp(pitch + moved.y * 0.15f, -90, 90);
                transform.rotation = Quaternion.AngleAxis(yaw, Vector3.up) * Quaternion.AngleAxis(pitch, Vector3.right);
            }
        }

        // Mouse position in pixels and right button, from whichever input system the project uses.
        static void ReadMouse(out Vector3 at, out bool held)
        {
            at = Vector3.zero;
            held = false;
#if ENABLE_LEGACY_INPUT_MANAGER
            at = Input.mousePosition;
            held = Input.GetMouseButton(1);
#elif HOLOCAST_INPUT_SYSTEM
            if (Mouse.current != null)
            {
                at = Mouse.current.position.ReadValue();
                held = Mouse.current.rightButton.isPressed;
            }
#endif
        }
    }
}
