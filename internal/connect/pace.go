package connect

import (
	"math/rand/v2"
	"time"
)

// promptMoves is the number of moves in a row that are not delayed, so that a full relay may send a client
// on, even twice.
const promptMoves = 2

// pace limits how often a session moves after GOAWAYs, since a relay may send one in each new session.
type pace struct {
	moves int // of sessions in a row that lasted less than lastRetry
	wait  time.Duration
}

// delay returns how long to stay with a session that lasted that long before it received a GOAWAY.
func (p *pace) delay(lasted time.Duration) time.Duration {
	if lasted > lastRetry {
		*p = pace{}
	}
	if p.moves++; p.moves <= promptMoves {
		return 0
	}
	p.wait = min(max(2*p.wait, firstRetry), lastRetry)
	return p.wait + rand.N(p.wait/4) // jitter
}
