package main

import (
	"bufio"
	"io"
	"time"

	"holocast/tools/holocast/player"
)

// key is the action of a key press in play.
type key int

const (
	keyNone key = iota
	keyToggle
	keyBack
	keyForward
	keyFarBack
	keyFarForward
	keyBeginning
	keyShare
	keyQuit
)

// Seek distances of the keys.
const (
	keyStep    = 5 * time.Second
	keyFarStep = time.Minute
)

// press performs a key's action.
func (k key) press(p *player.Player) error {
	switch k {
	case keyToggle:
		return p.Toggle()
	case keyBack:
		return p.Skip(-keyStep)
	case keyForward:
		return p.Skip(keyStep)
	case keyFarBack:
		return p.Skip(-keyFarStep)
	case keyFarForward:
		return p.Skip(keyFarStep)
	case keyBeginning:
		return p.Seek(0)
	case keyShare:
		return p.Share()
	}
	return nil
}

// escapes maps escape sequences of keys, without ESC, to actions (ECMA-48 and xterm).
var escapes = map[string]key{
	"[A": keyFarForward, "[B": keyFarBack, "[C": keyForward, "[D": keyBack, "[H": keyBeginning, "[1~": keyBeginning,
	"OA": keyFarForward, "OB": keyFarBack, "OC": keyForward, "OD": keyBack, "OH": keyBeginning,
}

// nextKey reads a key, or returns the input's error.
func nextKey(r *bufio.Reader) (key, error) {
	b, err := r.ReadByte()
	if err != nil {
		return keyNone, err
	}
	switch b {
	case ' ':
		return keyToggle, nil
	case 'l', 'L':
		return keyShare, nil
	case 'q', 'Q':
		return keyQuit, nil
	case 0x1b:
	default:
		return keyNone, nil
	}
	if r.Buffered() == 0 {
		return keyNone, nil // the Escape key
	}
	seq := ""
	for len(seq) < 8 {
		if b, err = r.ReadByte(); err != nil {
			return keyNone, err
		}
		seq += string(rune(b))
		if last := len(seq) > 1 && b >= 0x40 && b <= 0x7e; last {
			break
		}
	}
	return escapes[seq], nil
}

// followKeys sends the keys pressed until the input ends.
func followKeys(in io.Reader, keys chan<- key) {
	r := bufio.NewReader(in)
	for {
		k, err := nextKey(r)
		if err != nil {
			return
		}
		if k != keyNone {
			keys <- k
		}
	}
}
