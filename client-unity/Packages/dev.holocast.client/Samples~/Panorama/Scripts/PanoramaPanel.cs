using UnityEngine;

namespace Holocast.Samples
{
    /// <summary>PC controls for 360° video: an address to join, and pause and seek for recordings.</summary>
    public sealed class PanoramaPanel : MonoBehaviour
    {
        [SerializeField]
        HolocastSession session;

        [SerializeField]
        HolocastPlayback playback;

        string address = "";

        void OnEnable()
        {
            address = new HolocastAddress(session.Url, session.CertificateHash).ToString();
        }

        void OnGUI()
        {
            GUILayout.BeginArea(new Rect(10, 10, 360, 60));
            GUILayout.BeginHorizontal();
            address = GUILayout.TextField(address);
            if (GUILayout.Button("Connect") && HolocastAddress.TryParse(address, out HolocastAddress a))
            {
                session.Connect(a);
            }
            GUILayout.EndHorizontal();
            GUILayout.EndArea();
            if (!playback.Available)
            {
                return;
            }
            GUILayout.BeginArea(new Rect(10, Screen.height - 60, Screen.width - 20, 50));
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
            if (GUILayout.Button("Shared playback", GUILayout.Width(120)))
            {
                playback.GoLive();
            }
            GUILayout.EndHorizontal();
            GUILayout.EndArea();
        }
    }
}
