// Stub of the Unity.XR.Interaction.Toolkit 2.3+ members that the Mrtk assembly uses.
using UnityEngine.Events;

namespace UnityEngine.XR.Interaction.Toolkit
{
    public class SelectExitEventArgs
    {
    }

    public sealed class SelectExitEvent : UnityEvent<SelectExitEventArgs>
    {
    }

    public abstract class XRBaseInteractable : MonoBehaviour
    {
        public SelectExitEvent lastSelectExited { get; } = new SelectExitEvent();
    }
}
