//go:build linux && (amd64 || arm64)

package kernel

// Counters by reason. The reasons are label values of the metrics.
var (
	userReasons = map[string]fastpathCount{
		"gso":             fastpathCountCOUNT_USER_GSO,
		"unknown_address": fastpathCountCOUNT_USER_UNKNOWN_ADDRESS,
		"key_phase":       fastpathCountCOUNT_USER_KEY,
		"search":          fastpathCountCOUNT_USER_SEARCH,
		"forged":          fastpathCountCOUNT_USER_FORGED,
		"replayed":        fastpathCountCOUNT_USER_REPLAYED,
		"frames":          fastpathCountCOUNT_USER_FRAMES,
		"object":          fastpathCountCOUNT_USER_OBJECT,
		"alias":           fastpathCountCOUNT_USER_ALIAS,
	}
	fallbackReasons = map[string]fastpathCount{
		"filter":    fastpathCountCOUNT_FALLBACK_FILTER,
		"suspended": fastpathCountCOUNT_FALLBACK_SUSPENDED,
		"route":     fastpathCountCOUNT_FALLBACK_ROUTE,
		"size":      fastpathCountCOUNT_FALLBACK_SIZE,
		"numbers":   fastpathCountCOUNT_FALLBACK_NUMBERS,
		"budget":    fastpathCountCOUNT_FALLBACK_BUDGET,
		"order":     fastpathCountCOUNT_FALLBACK_ORDER,
		"ring":      fastpathCountCOUNT_FALLBACK_RING,
	}
)

// Counts returns the current counters.
func (k *Forwarder) Counts() (Counts, error) {
	var each []fastpathCounters
	if err := k.maps[fastpathMapCounts].Lookup(uint32(0), &each); err != nil {
		return Counts{}, err
	}
	sum := func(which fastpathCount) (n uint64) {
		for i := range each {
			n += each[i].Count[which]
		}
		return n
	}
	by := func(reasons map[string]fastpathCount) map[string]uint64 {
		m := make(map[string]uint64, len(reasons))
		for name, which := range reasons {
			m[name] = sum(which)
		}
		return m
	}
	return Counts{
		Precomputed: sum(fastpathCountCOUNT_PRECOMPUTED),
		Opened: sum(
			fastpathCountCOUNT_OPENED,
		), Forwarded: sum(fastpathCountCOUNT_FORWARDED), Bytes: sum(fastpathCountCOUNT_BYTES),
		Failed: sum(fastpathCountCOUNT_FAILED), Migrated: sum(fastpathCountCOUNT_MIGRATED),
		UserSpace: by(userReasons), Fallback: by(fallbackReasons),
	}, nil
}
