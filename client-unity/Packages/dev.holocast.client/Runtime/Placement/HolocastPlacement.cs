using UnityEngine;
using UnityEngine.XR;

namespace Holocast
{
    /// <summary>
    /// Places a hologram. It appears in front of the user; a tap puts it down; one or two hands move, turn
    /// and scale it. With a HolocastAnchor on the same object its place is kept across runs. Add this to the
    /// HolocastSession's object.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Placement")]
    [DefaultExecutionOrder(-40)]
    [DisallowMultipleComponent]
    public sealed class HolocastPlacement : MonoBehaviour
    {
        [SerializeField, Tooltip("Empty: the HolocastPoints on this object or its children")]
        HolocastPoints points;

        [SerializeField, Tooltip("Initial distance from the user, metres")]
        float distance = 1.5f;

        [SerializeField, Tooltip("Initial height of the subject's centre below the user's eyes, metres")]
        float below = 0.25f;

        [SerializeField, Tooltip("Let the headset's hands or controllers grab it. Turn off if MRTK handles input")]
        bool hands = true;

        [SerializeField, Tooltip("Size of the grabbable box around the subject, metres")]
        Vector3 size = new Vector3(1, 1.8f, 1);

        Transform head;
        HolocastAnchor anchor;
        TwoHands grip;
        Pinch left, right;
        bool placed, carried, leftHeld, rightHeld;

        struct Pinch
        {
            public bool Pressed; // in the previous frame
            public bool Began;
            public bool Holds; // began on the hologram
        }

        /// <summary>Initial distance from the user, metres.</summary>
        public float Distance
        {
            get => distance;
            set => distance = Mathf.Max(0.2f, value);
        }

        /// <summary>Lets the headset's hands or controllers grab the hologram.</summary>
        public bool Hands
        {
            get => hands;
            set
            {
                hands = value;
                left.Holds = right.Holds = leftHeld = rightHeld = false;
            }
        }

        /// <summary>Size of the grabbable box around the subject, metres.</summary>
        public Vector3 Size
        {
            get => size;
            set => size = value;
        }

        /// <summary>True while the hologram follows the user's view, until the next tap.</summary>
        public bool Carried => carried;

        /// <summary>Places the hologram in front of the user as soon as the subject's position is known.</summary>
        public void BringHere()
        {
            placed = TryBringHere();
            carried = false;
            if (placed)
            {
                Save();
            }
        }

        /// <summary>Makes the hologram follow the user's view until a tap or PutDown.</summary>
        public void PickUp()
        {
            carried = true;
        }

        /// <summary>Ends PickUp: leaves the hologram where it is and saves the place.</summary>
        public void PutDown()
        {
            if (carried)
            {
                carried = false;
                Save();
            }
        }

        /// <summary>Saves the current place. Call this after moving the hologram from a script.</summary>
        public void Save()
        {
            if (anchor != null)
            {
                anchor.Save(transform);
            }
        }

        void OnEnable()
        {
            if (points == null)
            {
                points = GetComponentInChildren<HolocastPoints>();
            }
            HandInput.RequestPermission();
            anchor = GetComponent<HolocastAnchor>();
            placed = anchor != null && anchor.Restore(transform);
        }

        void LateUpdate()
        {
            if (!placed || carried)
            {
                placed |= TryBringHere();
            }
            Hold();
        }

        Transform Head()
        {
            if (head == null && Camera.main is Camera main)
            {
                head = main.transform;
            }
            return head;
        }

        // Moves and turns the hologram so that the user sees the subject from the first camera's
        // viewpoint.
        bool TryBringHere()
        {
            if (Head() == null)
            {
                return false;
            }
            if (points == null || !points.TryGetSubject(out Vector3 middle, out Vector3 seenAlong))
            {
                return false;
            }
            Vector3 ahead = head.forward;
            ahead.y = 0;
            if (ahead.sqrMagnitude < 1e-4f)
            {
                ahead = head.up; // looking straight down: the head's up vector points forward
                ahead.y = 0;
            }
            ahead = ahead.normalized;
            Quaternion turn = Quaternion.FromToRotation(seenAlong, ahead);
            if (Vector3.Dot(seenAlong, ahead) < -0.999f)
            {
                turn = Quaternion.AngleAxis(180, Vector3.up);
            }
            Vector3 there = head.position + ahead * distance + Vector3.down * below;
            Vector3 position = there + turn * (transform.position - middle);
            transform.SetPositionAndRotation(position, turn * transform.rotation);
            return true;
        }

        void Hold()
        {
            Read(XRNode.LeftHand, ref left, out Hand leftHand);
            Read(XRNode.RightHand, ref right, out Hand rightHand);
            if (carried && (left.Began || right.Began))
            {
                PutDown();
            }
            bool l = left.Holds && !carried, r = right.Holds && !carried;
            Vector3 leftAt = leftHand.Position, rightAt = rightHand.Position;
            Quaternion leftRotation = leftHand.Rotation, rightRotation = rightHand.Rotation;
            if (l != leftHeld || r != rightHeld)
            {
                bool letGo = (leftHeld || rightHeld) && !l && !r;
                leftHeld = l;
                rightHeld = r;
                if (letGo)
                {
                    Save();
                }
                float scale = transform.localScale.x;
                if (l && r)
                {
                    grip = TwoHands.Grab(transform.position, transform.rotation, scale, leftAt, rightAt);
                }
                else if (l)
                {
                    grip = TwoHands.Grab(transform.position, transform.rotation, scale, leftAt, leftRotation);
                }
                else if (r)
                {
                    grip = TwoHands.Grab(transform.position, transform.rotation, scale, rightAt, rightRotation);
                }
                return;
            }
            if (!l && !r)
            {
                return;
            }
            Vector3 p;
            Quaternion q;
            float s;
            if (l && r)
            {
                grip.Move(leftAt, rightAt, out p, out q, out s);
            }
            else
            {
                grip.Move(l ? leftAt : rightAt, l ? leftRotation : rightRotation, out p, out q, out s);
            }
            transform.SetPositionAndRotation(p, q);
            transform.localScale = Vector3.one * s;
        }

        // A pinch that begins on the hologram grabs it, unless it selects a menu item or puts the
        // hologram down.
        void Read(XRNode node, ref Pinch pinch, out Hand hand)
        {
            bool found = HandInput.TryGet(node, Head(), out hand);
            pinch.Began = hand.Pressed && !pinch.Pressed && !HolocastMenu.PointedAt;
            pinch.Pressed = hand.Pressed;
            pinch.Holds = found && hand.Pressed
                && (pinch.Holds || pinch.Began && hands && !carried && OnHologram(hand));
        }

        bool OnHologram(in Hand hand)
        {
            return points != null && points.TryGetSubject(out Vector3 middle, out _)
                && GrabBox.Holds(transform, middle, size, hand);
        }
    }
}
