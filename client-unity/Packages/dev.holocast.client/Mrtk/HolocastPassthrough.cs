using UnityEngine;
#if HOLOCAST_ARFOUNDATION
using UnityEngine.XR.ARFoundation;
#endif

namespace Holocast
{
    /// <summary>
    /// Shows the room behind the holograms on headsets with passthrough (Quest 3, Android XR): clears the
    /// camera to transparent and enables AR Foundation's camera, which controls passthrough there. Adds the
    /// ARCameraManager and ARSession if they are missing. Does nothing if the project lacks AR Foundation.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Passthrough (AR Foundation)")]
    [RequireComponent(typeof(Camera))]
    [DisallowMultipleComponent]
    public sealed class HolocastPassthrough : MonoBehaviour
    {
#if HOLOCAST_ARFOUNDATION
        Camera eyes;
        CameraClearFlags clearFlags;
        Color background;
        ARCameraManager manager;

        void OnEnable()
        {
            eyes = GetComponent<Camera>();
            clearFlags = eyes.clearFlags;
            background = eyes.backgroundColor;
            eyes.clearFlags = CameraClearFlags.SolidColor;
            eyes.backgroundColor = Color.clear;
            RoomManagers.RequireSession();
            manager = GetComponent<ARCameraManager>();
            if (manager == null)
            {
                manager = gameObject.AddComponent<ARCameraManager>();
            }
            manager.enabled = true;
        }

        void OnDisable()
        {
            manager.enabled = false;
            eyes.clearFlags = clearFlags;
            eyes.backgroundColor = background;
        }
#endif
    }
}
