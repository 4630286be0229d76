using UnityEditor;
using UnityEngine;

namespace Holocast.Editor
{
    static class CreateMenu
    {
        [MenuItem("GameObject/Holocast/Hologram", false, 10)]
        static void Hologram(MenuCommand command)
        {
            var hologram = new GameObject("Hologram");
            hologram.AddComponent<HolocastSession>();
            hologram.AddComponent<HolocastPoints>();
            hologram.AddComponent<HolocastPlacement>();
            hologram.AddComponent<HolocastAnchor>();
            var hud = new GameObject("Hud");
            hud.AddComponent<HolocastHud>().Session = hologram.GetComponent<HolocastSession>();
            GameObjectUtility.SetParentAndAlign(hologram, command.context as GameObject);
            Undo.RegisterCreatedObjectUndo(hologram, "Create Hologram");
            Undo.RegisterCreatedObjectUndo(hud, "Create Hologram");
            Selection.activeGameObject = hologram;
        }

        [MenuItem("GameObject/Holocast/Sphere", false, 11)]
        static void Sphere(MenuCommand command)
        {
            var sphere = new GameObject("Sphere");
            // Below a hologram, the sphere shows the 360° video of that hologram's session.
            var parent = command.context as GameObject;
            if (parent == null || parent.transform.GetComponentInParent<HolocastSession>() == null)
            {
                sphere.AddComponent<HolocastSession>();
            }
            sphere.AddComponent<HolocastSphere>();
            GameObjectUtility.SetParentAndAlign(sphere, parent);
            Undo.RegisterCreatedObjectUndo(sphere, "Create Sphere");
            Selection.activeGameObject = sphere;
        }
    }
}
