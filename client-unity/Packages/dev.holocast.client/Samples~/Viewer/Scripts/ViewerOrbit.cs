using UnityEngine;

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
            Vector3 moved = Input.mousePosition - mouse;
            mouse = Input.mousePosition;
            if (points == null || !points.TryGetSubject(out Vector3 middle, out _))
            {
                return;
            }
            Vector3 from = transform.position - middle;
            if (Input.GetMouseButton(1))
            {
                from = Quaternion.AngleAxis(moved.x * 0.3f, Vector3.up) * Quaternion.AngleAxis(-moved.y * 0.3f,
                    transform.right) * from;
            }
            float wheel = Input.mouseScrollDelta.y;
            from *= Mathf.Exp(-0.1f * wheel);
            if (Input.GetMouseButton(1) || wheel != 0)
            {
                transform.position = middle + from;
                transform.rotation = Quaternion.LookRotation(-from, Vector3.up);
            }
        }
    }
}
