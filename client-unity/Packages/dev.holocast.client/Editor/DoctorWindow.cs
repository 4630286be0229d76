using System.Collections.Generic;
using UnityEditor;
using UnityEngine;

namespace Holocast.Editor
{
    // Window of Holocast › Troubleshoot.
    sealed class DoctorWindow : EditorWindow
    {
        List<Finding> findings = new List<Finding>();
        Vector2 scroll;

        [MenuItem("Holocast/Troubleshoot", priority = 0)]
        public static void Open()
        {
            var window = GetWindow<DoctorWindow>();
            window.titleContent = new GUIContent("Holocast");
            window.minSize = new Vector2(420, 260);
            window.Show();
        }

        void OnEnable()
        {
            findings = Doctor.Examine();
        }

        // Unity calls this ten times a second: repaint values that change in play mode.
        void OnInspectorUpdate()
        {
            if (Application.isPlaying)
            {
                findings = Doctor.Examine();
            }
            Repaint();
        }

        void OnGUI()
        {
            scroll = EditorGUILayout.BeginScrollView(scroll);
            foreach (Finding f in findings)
            {
                MessageType type = f.Verdict == Verdict.Bad ? MessageType.Error : f.Verdict == Verdict.Unsure
                    ? MessageType.Warning : MessageType.None;
                EditorGUILayout.HelpBox(f.Subject + ": " + f.Sentence, type);
            }
            EditorGUILayout.EndScrollView();
            if (GUILayout.Button("Look Again"))
            {
                findings = Doctor.Examine();
            }
        }
    }
}
