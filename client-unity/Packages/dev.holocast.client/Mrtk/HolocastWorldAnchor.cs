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
    /// Anchors a hologram to the room, so that HoloLens restores its place in later runs wherever they start.
    /// Requires an ARAnchorManager on the XR origin. Without Microsoft's OpenXR plugin it behaves like
    /// HolocastAnchor.
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
        bool restoring, saving, loading;

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

        void OnDisable()
        {
            Drop();
            // Anchors belong to one OpenXR session; the next load may open another.
            store = null;
        }

        void LateUpdate()
        {
            if (hologram == null || !(saving || restoring))
            {
                return;
            }
            if (store == null)
            {
                Load();
                return;
            }
            if (saving)
            {
                TrySave();
            }
            else
            {
                TryRestore();
            }
        }

        async void Load()
        {
            if (manager == null)
            {
                manager = FindAnyObjectByType<ARAnchorManager>();
            }
            if (loading || manager == null || manager.subsystem == null || !manager.subsystem.running)
            {
                return;
            }
            loading = true;
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
                return;
            }
            if (anchor.trackingState != TrackingState.Tracking)
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
            restoring = false;
        }

        void Drop()
        {
            if (anchor != null)
            {
                Destroy(anchor.gameObject);
                anchor = null;
            }
            wanted = TrackableId.invalidId;
        }
#endif
    }
}
