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
    /// Ties a hologram to the room: HoloLens finds the place again in the next run, wherever that
    /// begins. The scene needs an ARAnchorManager on its XR origin. Without Microsoft's OpenXR
    /// plugin in the project it is a HolocastAnchor.
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
            base.Save(placed); // the scale, and the place for where there is no store
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
            // Anchors belong to a session of OpenXR, which may be another one next time.
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

        // An anchor can be kept once the headset tracks it.
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
                    restoring = false; // never kept
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
