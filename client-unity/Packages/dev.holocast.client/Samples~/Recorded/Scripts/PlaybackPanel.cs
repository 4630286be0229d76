using UnityEngine;

namespace Holocast.Samples
{
    /// <summary>PC controls to pause and seek a recording.</summary>
    public sealed class PlaybackPanel : MonoBehaviour
    {
        [SerializeField]
        HolocastPlayback playback;

        void OnGUI()
        {
            GUILayout.BeginArea(new Rect(10, Screen.height - 60, Screen.width - 20, 50));
            if (!playback.Available)
            {
                GUILayout.Label("The session has no seekable recording: publish one with holocast replay.");
                GUILayout.EndArea();
                return;
            }
            GUILayout.BeginHorizontal();
            if (GUILayout.Button(playback.Playing ? "Pause" : "Play", GUILayout.Width(80)))
            {
                playback.Toggle();
            }
            float position = (float)playback.Position;
            float place = GUILayout.HorizontalSlider(position, 0, (float)playback.Duration);
            if (place != position)
            {
                playback.Seek(place);
            }
            GUILayout.Label(playback.Position.ToString("F1") + " / " + playback.Duration.ToString("F1") + " s",
                GUILayout.Width(120));
            if (GUILayout.Button("Shared playback", GUILayout.Width(120)))
            {
                playback.GoLive();
            }
            GUILayout.EndHorizontal();
            GUILayout.EndArea();
        }
    }
}
