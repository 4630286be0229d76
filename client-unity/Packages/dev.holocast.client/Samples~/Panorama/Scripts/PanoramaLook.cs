using UnityEngine;

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
            Vector3 moved = Input.mousePosition - mouse;
            mouse = Input.mousePosition;
            if (Input.GetMouseButton(1))
            {
                yaw -= moved.x * 0.15f;
                pitch = Mathf.Clamp(pitch + moved.y * 0.15f, -90, 90);
                transform.rotation = Quaternion.AngleAxis(yaw, Vector3.up) * Quaternion.AngleAxis(pitch, Vector3.right);
            }
        }
    }
}
