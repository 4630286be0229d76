package multipath

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzMessages parses bytes as each kind of message. Accepted messages must survive re-encoding.
func FuzzMessages(f *testing.F) {
	g := grants{data: 48 << 20, streamData: 2 << 20, streams: 1 << 10}
	for _, b := range [][]byte{
		hello{&token{1, 2}, "wifi", g}.message()[1:],
		hello{nil, "", g}.message()[1:],
		welcome{3, g}.message()[1:],
		header{number: 300, floor: 7, stream: 4, offset: 1 << 20, last: true}.append(nil),
		appendNumbers(nil, resetStream, 4, 1, 2000, 1000),
		acknowledgement(spans{{0, 3}, {5, 70}, {1 << 20, 1<<20 + 1}})[1:],
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHello(b); err == nil {
			again, err := parseHello(withoutLength(t, h.message()))
			if err != nil || !reflect.DeepEqual(again, h) {
				t.Errorf("HELLO %+v becomes %+v, %v", h, again, err)
			}
		}
		if w, err := parseWelcome(b); err == nil {
			if again, err := parseWelcome(withoutLength(t, w.message())); err != nil || again != w {
				t.Errorf("answer %+v becomes %+v, %v", w, again, err)
			}
		}
		if h, n, err := parseHeader(b); err == nil && n > 0 {
			if again, _, err := parseHeader(h.append(nil)); err != nil || again != h {
				t.Errorf("segment %+v becomes %+v, %v", h, again, err)
			}
		}
		if _, n, err := parseControl(b); err == nil && (n > len(b) || n > maxControl) {
			t.Errorf("control message of %d bytes", n)
		}
		if numbers, err := parseAck(b); err == nil && len(acknowledgement(numbers)) < maxAck-16 {
			if again, err := parseAck(acknowledgement(numbers)[1:]); err != nil || !reflect.DeepEqual(again, numbers) {
				t.Errorf("acknowledgement %v becomes %v, %v", numbers, again, err)
			}
		}
	})
}

// FuzzSegment reads arbitrary bytes as a segment, which must not cause a panic.
func FuzzSegment(f *testing.F) {
	f.Add(append(header{number: 1, stream: 3}.append(nil), "bytes"...))
	f.Add(append(header{stream: controlStream}.append(nil), maxData, 1))
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := newConn(true, Config{})
		defer c.fail(errNoPath)
		c.begin(c.cfg.grants())
		_, _ = c.readSegment(bytes.NewReader(b))
	})
}

func withoutLength(t *testing.T, b []byte) []byte {
	p := parser{b: b}
	m := p.bytes(maxMessage)
	if p.failed || len(p.b) > 0 {
		t.Fatalf("message %x", b)
	}
	return m
}
