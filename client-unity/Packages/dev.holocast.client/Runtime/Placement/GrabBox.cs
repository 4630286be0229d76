using UnityEngine;

namespace Holocast
{
    // The box around the subject. A pinch grabs the hologram if the hand is inside the box or its
    // pointer hits it.
    static class GrabBox
    {
        // Distance from the box within which a hand still grabs the hologram, metres.
        const float Margin = 0.1f;

        // size: edge lengths in the hologram's own coordinates. middle: world coordinates.
        public static bool Holds(Transform hologram, Vector3 middle, Vector3 size, in Hand hand)
        {
            Vector3 centre = hologram.InverseTransformPoint(middle);
            Vector3 half = size / 2;
            float margin = Margin / Mathf.Max(1e-3f, hologram.localScale.x);
            Vector3 at = hologram.InverseTransformPoint(hand.Position) - centre;
            Vector3 from = hologram.InverseTransformPoint(hand.Pointer.origin) - centre;
            Vector3 to = hologram.InverseTransformPoint(hand.Pointer.origin + hand.Pointer.direction) - centre;
            return Contains(half + Vector3.one * margin, at) || Meets(half, from, to - from);
        }

        static bool Contains(Vector3 half, Vector3 at)
        {
            return Mathf.Abs(at.x) <= half.x && Mathf.Abs(at.y) <= half.y && Mathf.Abs(at.z) <= half.z;
        }

        // True if a ray hits the box around the origin: its intervals between opposite faces overlap.
        static bool Meets(Vector3 half, Vector3 from, Vector3 along)
        {
            float enters = 0, leaves = float.PositiveInfinity;
            return Clip(half.x, from.x, along.x, ref enters, ref leaves)
                && Clip(half.y, from.y, along.y, ref enters, ref leaves)
                && Clip(half.z, from.z, along.z, ref enters, ref leaves);
        }

        static bool Clip(float half, float from, float along, ref float enters, ref float leaves)
        {
            if (Mathf.Abs(along) < 1e-9f)
            {
                return Mathf.Abs(from) <= half;
            }
            float a = (-half - from) / along, b = (half - from) / along;
            enters = Mathf.Max(enters, Mathf.Min(a, b));
            leaves = Mathf.Min(leaves, Mathf.Max(a, b));
            return enters <= leaves;
        }
    }
}
