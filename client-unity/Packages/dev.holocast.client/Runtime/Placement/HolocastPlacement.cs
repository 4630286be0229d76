using UnityEngine;
using UnityEngine.XR;

namespace Holocast
{
    /// <summary>
    /// Where a hologram stands: it appears before the user, is put down with a tap, is moved,
    /// turned and scaled with one hand or both, and stays there from one run to the next if there
    /// is a HolocastAnchor on this object. Add it to the HolocastSession's object.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Placement")]
    [DefaultExecutionOrder(-40)]
    [DisallowMultipleComponent]
    public sealed class HolocastPlacement : MonoBehaviour
    {
        [SerializeField, Tooltip("Empty: the one on this object or below it")]
        HolocastPoints points;

        [SerializeField, Tooltip("Metres before the user at which it appears")]
        float distance = 1.5f;

        [SerializeField, Tooltip("Metres below the user's eyes at which the middle of the subject appears")]
        float below = 0.25f;

        [SerializeField, Tooltip("Take hold of it with the hands or controllers of the headset. Off where MRTK does")]
        bool hands = true;

        Transform head;
        HolocastAnchor anchor;
        TwoHands grip;
        bool placed, carried, leftHeld, rightHeld, tapped, busy;

        /// <summary>Metres before the user at which it appears.</summary>
        public float Distance
        {
            get => distance;
            set => distance = Mathf.Max(0.2f, value);
        }

        /// <summary>Take hold of it with the hands or controllers of the headset.</summary>
        public bool Hands
        {
            get => hands;
            set
            {
                hands = value;
                leftHeld = rightHeld = false;
            }
        }

        /// <summary>Follows the user's view until the next tap.</summary>
        public bool Carried => carried;

        /// <summary>Places it before the user once the subject is known.</summary>
        public void BringHere()
        {
            placed = TryBringHere();
            carried = false;
            if (placed)
            {
                Save();
            }
        }

        /// <summary>Has it follow the user's view, until a tap, or PutDown, puts it down.</summary>
        public void PickUp()
        {
            carried = true;
        }

        public void PutDown()
        {
            if (carried)
            {
                carried = false;
                Save();
            }
        }

        /// <summary>Keeps the place that it has now. Whoever moves it calls this when done.</summary>
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
            anchor = GetComponent<HolocastAnchor>();
            placed = anchor != null && anchor.Restore(transform);
        }

        void LateUpdate()
        {
            if (!placed || carried)
            {
                placed |= TryBringHere();
            }
            if (hands)
            {
                Hold();
            }
        }

        // Moves and turns the hologram so that the user sees the subject as the first camera does.
        bool TryBringHere()
        {
            if (head == null)
            {
                Camera main = Camera.main;
                if (main == null)
                {
                    return false;
                }
                head = main.transform;
            }
            if (points == null || !points.TryGetSubject(out Vector3 middle, out Vector3 seenAlong))
            {
                return false;
            }
            Vector3 ahead = head.forward;
            ahead.y = 0;
            if (ahead.sqrMagnitude < 1e-4f)
            {
                ahead = head.up; // looking straight down: what is before the feet is up in the view
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
            bool l = HandInput.Pressed(XRNode.LeftHand, out Vector3 leftAt, out Quaternion leftTurned);
            bool r = HandInput.Pressed(XRNode.RightHand, out Vector3 rightAt, out Quaternion rightTurned);
            if (busy)
            {
                // These pinches are the menu's, until they end.
                busy = l || r || HolocastMenu.PointedAt;
                leftHeld = rightHeld = false;
                return;
            }
            busy = HolocastMenu.PointedAt && !leftHeld && !rightHeld;
            if (carried)
            {
                // The press that put it down takes no hold as well.
                if ((l || r) && !tapped)
                {
                    PutDown();
                }
                tapped = l || r;
                leftHeld = rightHeld = false;
                return;
            }
            if (tapped)
            {
                tapped = l || r;
                return;
            }
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
                    grip = TwoHands.Take(transform.position, transform.rotation, scale, leftAt, rightAt);
                }
                else if (l)
                {
                    grip = TwoHands.Take(transform.position, transform.rotation, scale, leftAt, leftTurned);
                }
                else if (r)
                {
                    grip = TwoHands.Take(transform.position, transform.rotation, scale, rightAt, rightTurned);
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
                grip.Move(l ? leftAt : rightAt, l ? leftTurned : rightTurned, out p, out q, out s);
            }
            transform.SetPositionAndRotation(p, q);
            transform.localScale = Vector3.one * s;
        }
    }
}
