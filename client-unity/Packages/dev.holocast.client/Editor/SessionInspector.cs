using UnityEditor;
using UnityEngine;

namespace Holocast.Editor
{
    [CustomEditor(typeof(HolocastSession))]
    sealed class SessionInspector : UnityEditor.Editor
    {
        public override bool RequiresConstantRepaint()
        {
            return Application.isPlaying;
        }

        public override void OnInspectorGUI()
        {
            DrawDefaultInspector();
            var session = (HolocastSession)target;
            if (session.Url.Length == 0)
            {
                EditorGUILayout.HelpBox("No address: the session is joined later, by menu or QR code.",
                    MessageType.Info);
            }
            else if (!HolocastAddress.TryParse(session.Url, out HolocastAddress address))
            {
                EditorGUILayout.HelpBox("Invalid session address: use the form moqt://host:4443/demo.",
                    MessageType.Error);
            }
            else if (address.Session.Length == 0)
            {
                EditorGUILayout.HelpBox("The address names no session: HolocastBrowser lists the relay's sessions.",
                    MessageType.Info);
            }
            if (!Application.isPlaying)
            {
                if (GUILayout.Button("Troubleshoot"))
                {
                    DoctorWindow.Open();
                }
                return;
            }
            EditorGUILayout.Space();
            EditorGUILayout.LabelField("State", session.State.ToString());
            if (session.Message.Length > 0)
            {
                EditorGUILayout.HelpBox(session.Message, session.State == HolocastState.Failed ? MessageType.Error
                    : MessageType.Info);
            }
            foreach (HolocastCamera camera in session.Catalog.Cameras)
            {
                foreach (HolocastTrack track in camera.Tracks)
                {
                    EditorGUILayout.LabelField("Camera " + camera.Number + " " + camera.Name, track.Quality + ", "
                        + track.Width + " × " + track.Height);
                }
            }
            if (session.TryGetStatistics(out HolocastStatistics s))
            {
                EditorGUILayout.LabelField("FPS shown, received", s.Fps.ToString("F1") + ", "
                    + s.ReceivedFps.ToString("F1"));
                EditorGUILayout.LabelField("Frame delay p50, p95", s.FrameDelayP50.ToString("F1") + ", "
                    + s.FrameDelayP95.ToString("F1") + " ms");
                EditorGUILayout.LabelField("Bit rate", s.MbitPerSecond.ToString("F1") + " Mbit/s");
                EditorGUILayout.LabelField("Lost, late, skipped", s.FramesLost + ", " + s.FramesLate + ", "
                    + s.FramesSkipped);
            }
            if (GUILayout.Button(session.State == HolocastState.Disconnected || session.State == HolocastState.Failed
                ? "Connect" : "Disconnect"))
            {
                if (session.State == HolocastState.Disconnected || session.State == HolocastState.Failed)
                {
                    session.Connect();
                }
                else
                {
                    session.Disconnect();
                }
            }
        }
    }

    [CustomEditor(typeof(HolocastPoints))]
    sealed class PointsInspector : UnityEditor.Editor
    {
        public override bool RequiresConstantRepaint()
        {
            return Application.isPlaying;
        }

        public override void OnInspectorGUI()
        {
            DrawDefaultInspector();
            var points = (HolocastPoints)target;
            if (points.Session == null && points.GetComponentInParent<HolocastSession>() == null)
            {
                EditorGUILayout.HelpBox("No HolocastSession on this object or its parents: assign one.",
                    MessageType.Warning);
            }
            if (Application.isPlaying)
            {
                EditorGUILayout.LabelField("Points drawn", points.Points.ToString("N0"));
                EditorGUILayout.LabelField("Display", points.DisplayFps.ToString("F0") + " FPS, budget level "
                    + points.BudgetLevel);
            }
        }
    }
}
