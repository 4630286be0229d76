package secureobjects

// windowGroups is the number of groups that a window remembers, and maxIDs the exclusive upper bound
// of object IDs that it remembers one by one.
const (
	windowGroups = 512
	maxIDs       = 1 << 16
)

// window remembers the locations of the newest groups; older ones count as seen. The zero window
// is empty.
type window struct {
	groups []seen // by group ID modulo windowGroups; nil until the first location
	newest uint64
}

// seen holds the object IDs of one group.
type seen struct {
	group uint64
	used  bool
	bits  []uint64
	above uint64 // one above the largest ID of at least maxIDs; 0 = none
}

// add adds a location. It returns false if the location was added before or may have been: if its
// group is older than the window, or its ID, above maxIDs, is not above the group's largest.
func (w *window) add(group, object uint64) bool {
	if w.groups == nil {
		w.groups = make([]seen, windowGroups)
		w.newest = group
	}
	if group < w.newest && w.newest-group >= windowGroups {
		return false
	}
	w.newest = max(w.newest, group)
	g := &w.groups[group%windowGroups]
	if !g.used || g.group != group {
		clear(g.bits)
		g.group, g.used, g.above = group, true, 0
	}
	if object >= maxIDs {
		if object < g.above {
			return false
		}
		g.above = object + 1
		return true
	}
	i, bit := int(object/64), uint64(1)<<(object%64)
	for len(g.bits) <= i {
		g.bits = append(g.bits, 0)
	}
	if g.bits[i]&bit != 0 {
		return false
	}
	g.bits[i] |= bit
	return true
}
