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
    }
}
