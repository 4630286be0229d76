using UnityEngine;

namespace Holocast
{
    // Computes an object's pose while one or two hands hold it. Pure functions of hand positions.
    struct TwoHands
    {
        Vector3 position, left, right;
        Quaternion rotation, hand;
        float scale;
        bool both;

        public const float SmallestScale = 0.05f;
        public const float LargestScale = 20;

        // Grab with one hand: the object moves with the hand and turns with it about the vertical.
        public static TwoHands Grab(Vector3 position, Quaternion rotation, float scale, Vector3 at, Quaternion hand)
        {
            return new TwoHands { position = position, rotation = rotation, scale = scale, left = at, hand = hand };
        }

        // Grab with both hands: their distance scales the object, their direction turns it, and
        // their midpoint moves it.
        public static TwoHands Grab(Vector3 position, Quaternion rotation, float scale, Vector3 left, Vector3 right)
        {
            return new TwoHands { position = position, rotation = rotation, scale = scale, left = left, right = right,
                both = true };
        }

        public void Move(Vector3 at, Quaternion turned, out Vector3 p, out Quaternion r, out float s)
        {
            Quaternion turn = Quaternion.AngleAxis(Yaw(turned * Vector3.forward) - Yaw(hand * Vector3.forward),
                Vector3.up);
            p = at + turn * (position - left);
            r = turn * rotation;
            s = scale;
        }

        public void Move(Vector3 l, Vector3 r, out Vector3 p, out Quaternion turned, out float s)
        {
            float was = Mathf.Max(0.01f, (right - left).magnitude);
            s = Mathf.Clamp(scale * (r - l).magnitude / was, SmallestScale, LargestScale);
            Quaternion turn = Quaternion.AngleAxis(Yaw(r - l) - Yaw(right - left), Vector3.up);
            p = (l + r) / 2 + turn * (position - (left + right) / 2) * (s / scale);
            turned = turn * rotation;
        }

        public bool Both => both;

        // Heading, in degrees about the vertical.
        static float Yaw(Vector3 direction)
        {
            return Mathf.Atan2(direction.x, direction.z) * Mathf.Rad2Deg;
        }
    }
}
