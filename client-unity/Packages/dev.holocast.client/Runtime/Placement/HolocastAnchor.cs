using System.Globalization;
using UnityEngine;

namespace Holocast
{
    /// <summary>
    /// Saves a hologram's pose and scale across runs, in PlayerPrefs, in scene coordinates. That suits
    /// devices whose scene origin is fixed, such as PCs; HolocastWorldAnchor (MRTK assembly) anchors to the
    /// room instead.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast Anchor")]
    public class HolocastAnchor : MonoBehaviour
    {
        [SerializeField, Tooltip("Key the pose is stored under")]
        string key = "Holocast.Place";

        /// <summary>Key under which the pose is stored. Use a different one per hologram.</summary>
        public string Key
        {
            get => key;
            set => key = value;
        }

        /// <summary>Saves the hologram's current pose and scale.</summary>
        public virtual void Save(Transform hologram)
        {
            Vector3 p = hologram.position;
            Quaternion r = hologram.rotation;
            PlayerPrefs.SetString(key, string.Join(" ", new[]
            {
                Text(p.x), Text(p.y), Text(p.z), Text(r.x), Text(r.y), Text(r.z), Text(r.w),
                    Text(hologram.localScale.x),
            }));
            PlayerPrefs.Save();
        }

        /// <summary>Restores the saved pose and scale; returns false if there are none.</summary>
        public virtual bool Restore(Transform hologram)
        {
            string[] parts = PlayerPrefs.GetString(key, "").Split(' ');
            var v = new float[8];
            if (parts.Length != v.Length)
            {
                return false;
            }
            for (int i = 0; i < v.Length; i++)
            {
                if (!float.TryParse(parts[i], NumberStyles.Float, CultureInfo.InvariantCulture, out v[i])
                    || float.IsNaN(v[i]) || float.IsInfinity(v[i]))
                {
                    return false;
                }
            }
            var rotation = new Quaternion(v[3], v[4], v[5], v[6]);
            if (v[7] < TwoHands.SmallestScale || v[7] > TwoHands.LargestScale
                || Quaternion.Dot(rotation, rotation) < 0.5f)
            {
                return false;
            }
            hologram.SetPositionAndRotation(new Vector3(v[0], v[1], v[2]), rotation.normalized);
            hologram.localScale = Vector3.one * v[7];
            return true;
        }

        /// <summary>Deletes the saved pose.</summary>
        public virtual void Clear()
        {
            PlayerPrefs.DeleteKey(key);
        }

        static string Text(float f)
        {
            return f.ToString("R", CultureInfo.InvariantCulture);
        }
    }
}
