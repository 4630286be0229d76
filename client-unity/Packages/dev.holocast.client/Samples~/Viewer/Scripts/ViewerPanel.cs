using UnityEngine;

namespace Holocast.Samples
{
    /// <summary>PC controls to choose address, camera and quality.</summary>
    public sealed class ViewerPanel : MonoBehaviour
    {
        [SerializeField]
        HolocastSession session;

        [SerializeField]
        HolocastPoints points;

        [SerializeField]
        HolocastBrowser browser;

        [SerializeField]
        HolocastPlacement placement;

        string address = "";

        void OnEnable()
        {
            address = new HolocastAddress(session.Url, session.CertificateHash).ToString();
        }

        void OnGUI()
        {
            GUILayout.BeginArea(new Rect(10, 10, 360, Screen.height - 20));
            GUILayout.Label("Address");
            address = GUILayout.TextField(address);
            GUILayout.BeginHorizontal();
            if (GUILayout.Button("Connect"))
            {
                if (HolocastAddress.TryParse(address, out HolocastAddress a) && a.Session.Length > 0)
                {
                    browser.Join(a);
                }
                else
                {
                    browser.Browse(address);
                }
            }
            if (GUILayout.Button("Disconnect"))
            {
                session.Disconnect();
            }
            if (GUILayout.Button("Bring here"))
            {
                placement.BringHere();
            }
            GUILayout.EndHorizontal();
            foreach (string name in browser.Sessions)
            {
                if (GUILayout.Button("Join " + name))
                {
                    browser.Join(name);
                }
            }
            if (browser.Message.Length > 0)
            {
                GUILayout.Label(browser.Message);
            }
            bool surface = GUILayout.Toggle(points.Look == HolocastLook.Surface, "Surface");
            points.Look = surface ? HolocastLook.Surface : HolocastLook.Points;
            GUILayout.Label("Point size " + points.PointSize.ToString("F1"));
            points.PointSize = GUILayout.HorizontalSlider(points.PointSize, 0.5f, 4);
            GUILayout.BeginHorizontal();
            if (GUILayout.Button("Automatic"))
            {
                points.Quality = "";
            }
            if (session.Catalog.Cameras.Count > 0)
            {
                foreach (HolocastTrack track in session.Catalog.Cameras[0].Tracks)
                {
                    if (GUILayout.Button(track.Quality))
                    {
                        points.Quality = track.Quality;
                    }
                }
            }
            GUILayout.EndHorizontal();
            GUILayout.EndArea();
        }
    }
}
