using UnityEngine;

namespace Holocast.Samples
{
    /// <summary>A bar to pause a recording and to move about in it, for a PC.</summary>
    public sealed class PlaybackPanel : MonoBehaviour
    {
        [SerializeField]
        HolocastPlayback playback;

        void OnGUI()
        {
            GUILayout.BeginArea(new Rect(10, Screen.height - 60, Screen.width - 20, 50));
            if (!playback.Available)
            {
                GUILayout.Label("The session has no recording to move about in: publish one with holocast replay.");
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
            GUILayout.Label(playback.Position.ToString("F1") + " / " + playback.Duration.ToString("F1") + " s", GUILayout.Width(120));
            if (GUILayout.Button("What all see", GUILayout.Width(120)))
            {
                playback.GoLive();
            }
            GUILayout.EndHorizontal();
            GUILayout.EndArea();
        }
    }
}
