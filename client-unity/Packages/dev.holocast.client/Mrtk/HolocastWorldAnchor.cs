using UnityEngine;
#if HOLOCAST_OPENXR
using Microsoft.MixedReality.OpenXR;
using Microsoft.MixedReality.OpenXR.ARFoundation;
using UnityEngine.XR.ARFoundation;
using UnityEngine.XR.ARSubsystems;
#endif

namespace Holocast
{
    /// <summary>
    /// Anchors a hologram to the room: it stays in place as the headset corrects its map, and HoloLens
    /// restores its place in later runs wherever they start. Adds an ARAnchorManager if the scene has none.
    /// Without Microsoft's OpenXR plugin it behaves like HolocastAnchor.
    /// </summary>
    [AddComponentMenu("Holocast/Holocast World Anchor (OpenXR)")]
    public sealed class HolocastWorldAnchor : HolocastAnchor
    {
#if HOLOCAST_OPENXR
        XRAnchorStore store;
        ARAnchorManager manager;
        ARAnchor anchor;
        TrackableId wanted = TrackableId.invalidId;
        Transform hologram;
        HolocastSession session;
        Vector3 position;
        Quaternion rotation;
        float since, retryAt;
        bool restoring, saving, loading, following;

        public override void Save(Transform placed)
        {
            base.Save(placed); // the scale, and the pose as a fallback if there is no anchor store
            Drop();
            hologram = placed;
            restoring = false;
            saving = true;
        }

        public override bool Restore(Transform placed)
        {
            hologram = placed;
            restoring = true;
            return base.Restore(placed);
        }

        public override void Clear()
        {
            base.Clear();
            if (store != null)
            {
                store.UnpersistAnchor(Key);
            }
            Drop();
        }

        void OnEnable()
        {
            session = GetComponentInParent<HolocastSession>();
            manager = RoomManagers.Require<ARAnchorManager>();
            since = Time.realtimeSinceStartup;
        }

        void OnDisable()
        {
            Drop();
            Tell("");
            // Anchors belong to one OpenXR session; the next load may open another.
            store = null;
        }

        void LateUpdate()
        {
            if (manager.subsystem == null || !manager.subsystem.running)
            {
                if (Time.realtimeSinceStartup - since > RoomManagers.Patience)
                {
                    Tell("The hologram is not anchored to the room: enable the Microsoft HoloLens feature group under "
                        + "OpenXR.");
                }
                return;
            }
            Tell("");
            if (hologram == null)
            {
                return;
            }
            if (store == null)
            {
                Load();
            }
            if (saving)
            {
                TrySave();
            }
            else if (restoring && store != null)
            {
                TryRestore();
            }
            Follow();
        }

        void Tell(string sentence)
        {
            if (session != null)
            {
                session.SetNotice(this, sentence);
            }
        }

        async void Load()
        {
            if (loading || Time.realtimeSinceStartup < retryAt)
            {
                return;
            }
            loading = true;
            retryAt = Time.realtimeSinceStartup + RoomManagers.Patience;
            try
            {
                store = await manager.LoadAnchorStoreAsync();
            }
            finally
            {
                loading = false;
            }
        }

        // An anchor can be persisted only while it is tracked.
        void TrySave()
        {
            if (anchor == null)
            {
                var place = new GameObject("Holocast place");
                place.transform.SetPositionAndRotation(hologram.position, hologram.rotation);
                anchor = place.AddComponent<ARAnchor>();
                Applied();
                return;
            }
            if (store == null || anchor.trackingState != TrackingState.Tracking)
            {
                return;
            }
            store.UnpersistAnchor(Key);
            if (store.TryPersistAnchor(anchor.trackableId, Key))
            {
                saving = false;
            }
        }

        void TryRestore()
        {
            if (wanted == TrackableId.invalidId)
            {
                wanted = store.LoadAnchor(Key);
                if (wanted == TrackableId.invalidId)
                {
                    restoring = false; // no stored anchor
                    return;
                }
            }
            ARAnchor found = manager.GetAnchor(wanted);
            if (found == null || found.trackingState != TrackingState.Tracking)
            {
                return;
            }
            anchor = found;
            hologram.SetPositionAndRotation(found.transform.position, found.transform.rotation);
            Applied();
            restoring = false;
        }

        // The headset moves a tracked anchor as its map improves. Following ends when something else
        // moves the hologram, and resumes at the next Save.
        void Follow()
        {
            if (!following || anchor == null)
            {
                return;
            }
            if ((hologram.position - position).sqrMagnitude > 1e-6f
                || Quaternion.Angle(hologram.rotation, rotation) > 0.1f)
            {
                following = false;
                return;
            }
            if (anchor.trackingState == TrackingState.Tracking)
            {
                hologram.SetPositionAndRotation(anchor.transform.position, anchor.transform.rotation);
                Applied();
            }
        }

        void Applied()
        {
            position = hologram.position;
            rotation = hologram.rotation;
            following = true;
        }

        void Drop()
        {
            if (anchor != null)
            {
                Destroy(anchor.gameObject);
                anchor = null;
            }
            following = false;
            wanted = TrackableId.invalidId;
        }
#endif
    }
}
