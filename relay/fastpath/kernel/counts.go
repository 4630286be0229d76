//go:build linux && (amd64 || arm64)

package kernel

// Reasons, as the metrics name them.
var (
	slowReasons = map[string]fastpathCount{
		"gso":             fastpathCountCOUNT_SLOW_GSO,
		"unknown_address": fastpathCountCOUNT_SLOW_UNKNOWN_ADDRESS,
		"key_phase":       fastpathCountCOUNT_SLOW_KEY,
		"search":          fastpathCountCOUNT_SLOW_SEARCH,
		"forged":          fastpathCountCOUNT_SLOW_FORGED,
		"replayed":        fastpathCountCOUNT_SLOW_REPLAYED,
		"frames":          fastpathCountCOUNT_SLOW_FRAMES,
		"object":          fastpathCountCOUNT_SLOW_OBJECT,
		"alias":           fastpathCountCOUNT_SLOW_ALIAS,
	}
	leftReasons = map[string]fastpathCount{
		"filter":    fastpathCountCOUNT_LEFT_FILTER,
		"suspended": fastpathCountCOUNT_LEFT_OFF,
		"route":     fastpathCountCOUNT_LEFT_ROUTE,
		"size":      fastpathCountCOUNT_LEFT_SIZE,
		"numbers":   fastpathCountCOUNT_LEFT_NUMBERS,
		"budget":    fastpathCountCOUNT_LEFT_BUDGET,
		"behind":    fastpathCountCOUNT_LEFT_BEHIND,
		"ring":      fastpathCountCOUNT_LEFT_RING,
	}
)

// Counts returns the counters now.
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
		Ahead:  sum(fastpathCountCOUNT_AHEAD),
		Opened: sum(fastpathCountCOUNT_OPENED), Forwarded: sum(fastpathCountCOUNT_FORWARDED), Bytes: sum(fastpathCountCOUNT_BYTES),
		Failed: sum(fastpathCountCOUNT_FAILED), Moved: sum(fastpathCountCOUNT_MOVED),
		Slow: by(slowReasons), Left: by(leftReasons),
	}, nil
}
