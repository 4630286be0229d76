package wan

// tree is a k-d tree of points. The middle element of each range splits it; the axis cycles through
// x, y and z from level to level.
type tree struct {
	points [][3]float32
	order  []int32
}

func newTree(points [][3]float32) *tree {
	t := &tree{points: points, order: make([]int32, len(points))}
	for i := range t.order {
		t.order[i] = int32(i)
	}
	t.split(t.order, 0)
	return t
}

func (t *tree) split(part []int32, axis int) {
	if len(part) < 2 {
		return
	}
	middle := len(part) / 2
	t.pick(part, middle, axis)
	t.split(part[:middle], (axis+1)%3)
	t.split(part[middle+1:], (axis+1)%3)
}

// pick moves the k-th smallest point to index k, smaller ones before it (Hoare's quickselect).
func (t *tree) pick(part []int32, k, axis int) {
	for low, high := 0, len(part)-1; low < high; {
		pivot := t.points[part[(low+high)/2]][axis]
		i, j := low, high
		for i <= j {
			for t.points[part[i]][axis] < pivot {
				i++
			}
			for t.points[part[j]][axis] > pivot {
				j--
			}
			if i <= j {
				part[i], part[j] = part[j], part[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j:
			high = j
		case k >= i:
			low = i
		default:
			return
		}
	}
}

// nearest returns the index of the point nearest to p.
func (t *tree) nearest(p [3]float32) int {
	s := search{t, p, t.order[len(t.order)/2], 0}
	gap := sub(t.points[s.best], p)
	s.gap = dot(gap, gap)
	s.descend(t.order, 0)
	return int(s.best)
}

type search struct {
	*tree
	p    [3]float32
	best int32
	gap  float32 // squared
}

func (s *search) descend(part []int32, axis int) {
	if len(part) == 0 {
		return
	}
	middle := len(part) / 2
	at := part[middle]
	gap := sub(s.points[at], s.p)
	if d := dot(gap, gap); d < s.gap {
		s.best, s.gap = at, d
	}
	near, far := part[:middle], part[middle+1:]
	if gap[axis] < 0 {
		near, far = far, near
	}
	s.descend(near, (axis+1)%3)
	if gap[axis]*gap[axis] < s.gap {
		s.descend(far, (axis+1)%3)
	}
}
