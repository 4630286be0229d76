using System.Collections.Generic;
using Holocast.Native;
using UnityEngine;

namespace Holocast
{
    // The audio sources of a session: one per sound track, below the session's points, so that they
    // move with the hologram.
    sealed class SoundSources
    {
        const float Period = 0.5f; // seconds between checks of errors

        readonly List<HolocastSound> list = new List<HolocastSound>();
        HcSound[] tracks = new HcSound[4];
        int count;
        bool changed, showsSphere, plays;
        HolocastSession session;
        double nextAt;

        public IReadOnlyList<HolocastSound> List => list;

        public void Changed()
        {
            changed = true;
        }

        public void Update(HolocastSession of)
        {
            session = of;
            if (changed || showsSphere != of.ShowsSphere || plays != of.Sound)
            {
                changed = false;
                showsSphere = of.ShowsSphere;
                plays = of.Sound;
                count = of.Client.Sounds(ref tracks);
                Sync();
            }
            double now = Time.unscaledTimeAsDouble;
            if (now < nextAt)
            {
                return;
            }
            nextAt = now + Period;
            for (int i = 0; i < list.Count; i++)
            {
                if (list[i].Poll(of.Volume))
                {
                    of.SetNotice(list[i], list[i].Error);
                }
            }
        }

        // Creates missing sources and destroys those whose track is gone.
        unsafe void Sync()
        {
            for (int i = list.Count - 1; i >= 0; i--)
            {
                int at = Find(list[i].Number);
                if (at < 0 || !Wanted(tracks[at]) || list[i].Placed != ((tracks[at].flags & Abi.SoundPlaced) != 0))
                {
                    Remove(i);
                }
            }
            for (int i = 0; i < count; i++)
            {
                if (!Wanted(tracks[i]))
                {
                    continue;
                }
                HolocastSound sound = Playing((int)tracks[i].sound);
                if (sound == null)
                {
                    string label;
                    fixed (byte* name = tracks[i].name)
                    {
                        label = HolocastCatalog.Text(name, HcSound.NameLength);
                    }
                    HolocastPoints points = session.GetComponentInChildren<HolocastPoints>();
                    var place = new GameObject("Sound " + label) { hideFlags = HideFlags.DontSave };
                    place.transform.SetParent(points != null ? points.transform : session.transform, false);
                    sound = place.AddComponent<HolocastSound>();
                    sound.Open(session.Client, tracks[i], label);
                    list.Add(sound);
                    Listen();
                    nextAt = 0;
                }
                sound.Move(tracks[i], session.Catalog.StudioYUp);
            }
        }

        bool Wanted(in HcSound track)
        {
            return session.Sound && (track.sound < Abi.SoundFilm || session.ShowsSphere);
        }

        int Find(int number)
        {
            for (int i = 0; i < count; i++)
            {
                if (tracks[i].sound == number)
                {
                    return i;
                }
            }
            return -1;
        }

        HolocastSound Playing(int number)
        {
            for (int i = 0; i < list.Count; i++)
            {
                if (list[i].Number == number)
                {
                    return list[i];
                }
            }
            return null;
        }

        // Nothing is audible without a listener, and cameras created in code have none.
        static void Listen()
        {
            Camera eyes = Camera.main;
            if (eyes != null && Object.FindAnyObjectByType<AudioListener>() == null)
            {
                eyes.gameObject.AddComponent<AudioListener>();
            }
        }

        public void Clear()
        {
            for (int i = list.Count - 1; i >= 0; i--)
            {
                Remove(i);
            }
            count = 0;
        }

        void Remove(int i)
        {
            HolocastSound sound = list[i];
            list.RemoveAt(i);
            session.SetNotice(sound, "");
            if (sound != null)
            {
                Object.Destroy(sound.gameObject);
            }
        }
    }
}
