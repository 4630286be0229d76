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

    public enum InteractableSelectMode
    {
        Single = 0,
        Multiple = 1,
    }

    public abstract class XRBaseInteractable : MonoBehaviour
    {
        // MRTK3 sets Multiple in Reset(), which runs in the editor only.
        public InteractableSelectMode selectMode { get; set; }
        public SelectExitEvent lastSelectExited { get; } = new SelectExitEvent();
    }
}
