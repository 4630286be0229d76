// Stub of the MRTK 3 members that the Mrtk assembly uses.
using System;
using UnityEngine;
using UnityEngine.XR.Interaction.Toolkit;

namespace MixedReality.Toolkit
{
    [Flags]
    public enum TransformFlags
    {
        None = 0,
        Move = 1,
        Rotate = 2,
        Scale = 4,
    }
}

namespace MixedReality.Toolkit.SpatialManipulation
{
    public class ObjectManipulator : XRBaseInteractable
    {
        public TransformFlags AllowedManipulations { get; set; }
    }
}
