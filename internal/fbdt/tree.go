package fbdt

import "cmp"

// place is a position in the sending order: a byte of a stream.
type place struct {
	s   *stream
	off int64
}

func (a place) compare(b place) int {
	if a.s != b.s {
		return cmp.Or(cmp.Compare(a.s.p.Urgency, b.s.p.Urgency), cmp.Compare(a.s.p.Order, b.s.p.Order),
			cmp.Compare(a.s.age, b.s.age))
	}
	return cmp.Compare(a.off, b.off)
}

// tree holds pieces in sending order. It finds them by place, or by the number of bytes before them, in O(log n).
// It is a treap whose nodes store the number of bytes in their subtrees.
type tree struct {
	root *piece
	rand uint32
}

func (t *tree) bytes() int64 { return t.root.bytes() }

func (p *piece) bytes() int64 {
	if p == nil {
		return 0
	}
	return p.sum
}

func (p *piece) fix() { p.sum = p.left.bytes() + p.length() + p.right.bytes() }

func (t *tree) insert(p *piece) {
	t.rand = t.rand*1664525 + 1013904223 // any cheap generator will do
	p.weight, p.in, p.left, p.right = t.rand>>8, t, nil, nil
	t.root = insert(t.root, p)
}

func insert(n, p *piece) *piece {
	switch {
	case n == nil:
	case p.weight > n.weight:
		p.left, p.right = split(n, p.place())
	case p.place().compare(n.place()) < 0:
		n.left = insert(n.left, p)
		n.fix()
		return n
	default:
		n.right = insert(n.right, p)
		n.fix()
		return n
	}
	p.fix()
	return p
}

// split separates the pieces before a place from the others.
func split(n *piece, at place) (l, r *piece) {
	if n == nil {
		return nil, nil
	}
	if n.place().compare(at) < 0 {
		n.right, r = split(n.right, at)
		n.fix()
		return n, r
	}
	l, n.left = split(n.left, at)
	n.fix()
	return l, n
}

func join(l, r *piece) *piece {
	switch {
	case l == nil:
		return r
	case r == nil:
		return l
	case l.weight > r.weight:
		l.right = join(l.right, r)
		l.fix()
		return l
	}
	r.left = join(l, r.left)
	r.fix()
	return r
}

func (t *tree) remove(p *piece) {
	link := &t.root
	for *link != p {
		(*link).sum -= p.length()
		if p.place().compare((*link).place()) < 0 {
			link = &(*link).left
		} else {
			link = &(*link).right
		}
	}
	*link = join(p.left, p.right)
	p.in, p.left, p.right = nil, nil, nil
}

// setEnd moves the end of a piece in the tree.
func (t *tree) setEnd(p *piece, end int64) {
	d := end - p.end
	n := t.root
	for n != p {
		n.sum += d
		if p.place().compare(n.place()) < 0 {
			n = n.left
		} else {
			n = n.right
		}
	}
	p.end = end
	p.sum += d
}

// at returns the piece that contains offset pos of the tree's bytes, and the number of bytes before the
// piece.
func (t *tree) at(pos int64) (p *piece, before int64) {
	n := t.root
	for n != nil {
		l := before + n.left.bytes()
		switch {
		case pos < l:
			n = n.left
		case pos < l+n.length():
			return n, l
		default:
			before = l + n.length()
			n = n.right
		}
	}
	return nil, before
}

// rank returns the number of bytes before a place.
func (t *tree) rank(at place) (before int64) {
	n := t.root
	for n != nil {
		if at.compare(n.place()) <= 0 {
			n = n.left
			continue
		}
		before += n.left.bytes()
		if at.s == n.s && at.off < n.end {
			return before + at.off - n.start
		}
		before += n.length()
		n = n.right
	}
	return before
}
