package multipath

import (
	"errors"
	"testing"
	"time"
)

// TestRefusedTokens checks that invalid tokens are refused and that the server forgets ended bundles.
func TestRefusedTokens(t *testing.T) {
	now := time.Now()
	for why, prepare := range map[string]func(s *Server, c *Conn) (token, time.Time){
		unknownToken: func(*Server, *Conn) (token, time.Time) { return token{1}, now },
		usedToken: func(s *Server, c *Conn) (token, time.Time) {
			used := s.fresh(c, now)
			s.tokens[used].used = true
			return used, now
		},
		expiredToken: func(s *Server, c *Conn) (token, time.Time) {
			return s.fresh(c, now), now.Add(tokenLife + time.Nanosecond)
		},
		expiredToken + ", by fresher ones": func(s *Server, c *Conn) (token, time.Time) {
			oldest := s.fresh(c, now)
			for range maxTokens {
				s.fresh(c, now)
			}
			return oldest, now
		},
		endedBundle: func(s *Server, c *Conn) (token, time.Time) {
			last := s.fresh(c, now)
			c.fail(errNoPath)
			s.forget(c)
			for _, g := range s.tokens {
				if g.c != nil {
					t.Error("the server keeps an ended bundle")
				}
			}
			s.issue(c, 1, now)
			if len(s.tokens) != 1 {
				t.Error("an ended bundle gets another token")
			}
			return last, now
		},
	} {
		t.Run(why, func(t *testing.T) {
			s, c := NewServer(), newConn(false, Config{})
			defer c.fail(errNoPath)
			presented, at := prepare(s, c)
			_, err := s.redeem(presented, nil, at)
			refused, ok := errors.AsType[refusal](err)
			if !ok || refused.reason != why && refused.reason+", by fresher ones" != why {
				t.Errorf("%v, want %s", err, why)
			}
		})
	}
}
