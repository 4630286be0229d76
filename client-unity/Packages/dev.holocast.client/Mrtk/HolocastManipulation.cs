using UnityEngine;
#if HOLOCAST_MRTK3
using MixedReality.Toolkit;
using MixedReality.Toolkit.SpatialManipulation;
using UnityEngine.XR.Interaction.Toolkit;
#if HOLOCAST_XRI3
using UnityEngine.XR.Interaction.Toolkit.Interactables;
#endif
#endif

namespace Holocast
{
    /// <summary>
    /// Lets MRTK3 move, turn and scale a hologram, near and far, with one or two hands. Replaces the hand
    /// input of HolocastPlacement. Does nothing if the project lacks MRTK3.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Manipulation (MRTK3)")]
    [RequireComponent(typeof(HolocastPlacement))]
    public sealed class HolocastManipulation : MonoBehaviour
    {
        [SerializeField, Tooltip("Size of the grabbable box around the subject, metres")]
        Vector3 size = new Vector3(1, 1.8f, 1);

        /// <summary>Size of the grabbable box around the subject, metres.</summary>
        public Vector3 Size
        {
            get => size;
            set => size = value;
        }

#if HOLOCAST_MRTK3
        HolocastPlacement placement;
        HolocastPoints points;
        BoxCollider box;
        ObjectManipulator manipulator;

        void OnEnable()
        {
            placement = GetComponent<HolocastPlacement>();
            points = GetComponentInChildren<HolocastPoints>();
            placement.Hands = false;
        }

        void OnDisable()
        {
            placement.Hands = true;
            if (manipulator != null)
            {
                manipulator.lastSelectExited.RemoveListener(LetGo);
                Destroy(manipulator);
                Destroy(box);
            }
        }

        // The box is centred on the subject, whose position is known from the first frame on.
        void Update()
        {
            if (manipulator != null || points == null || !points.TryGetSubject(out Vector3 middle, out _))
            {
                return;
            }
            box = gameObject.AddComponent<BoxCollider>();
            box.center = transform.InverseTransformPoint(middle);
            box.size = size;
            manipulator = gameObject.AddComponent<ObjectManipulator>();
            // MRTK3 sets this in Reset(), which runs in the editor only.
            manipulator.selectMode = InteractableSelectMode.Multiple;
            manipulator.AllowedManipulations = TransformFlags.Move | TransformFlags.Rotate | TransformFlags.Scale;
            manipulator.lastSelectExited.AddListener(LetGo);
        }

        void LetGo(SelectExitEventArgs _)
        {
            placement.Save();
        }
#endif
    }
}
