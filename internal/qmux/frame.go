package qmux

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
)

// Frame types (RFC 9000 §19, RFC 9221, draft-ietf-quic-reliable-stream-reset, draft-ietf-quic-qmux).
const (
	typePadding           = 0x00
	typeReset             = 0x04
	typeStopSending       = 0x05
	typeStream            = 0x08 // to 0x0f, with the bits below
	typeMaxData           = 0x10
	typeMaxStreamData     = 0x11
	typeMaxStreamsBidi    = 0x12
	typeMaxStreamsUni     = 0x13
	typeDataBlocked       = 0x14
	typeStreamDataBlocked = 0x15
	typeStreamsBlocked    = 0x16 // and 0x17
	typeClose             = 0x1c
	typeCloseApplication  = 0x1d
	typeResetAt           = 0x24
	typeDatagram          = 0x30 // without a length
	typeDatagramLength    = 0x31
	typeParameters        = 0x3f5153300d0a0d0a
	typePing              = 0x348c67529ef8c7bd
	typePong              = 0x348c67529ef8c7be
)

// Bits of a STREAM frame's type.
const (
	bitFin    = 0x01
	bitLength = 0x02
	bitOffset = 0x04
)

// maxStreams is the largest limit on streams (RFC 9000 §19.11).
const maxStreams = 1 << 60

// frame is a decoded frame. Which fields are in use depends on its type.
type frame struct {
	typ    uint64 // of STREAM frames typeStream, of STREAMS_BLOCKED frames typeStreamsBlocked
	id     uint64 // of a stream
	value  uint64 // offset, limit, final size or sequence number
	code   uint64
	at     uint64 // reliable size of RESET_STREAM_AT
	data   []byte // payload, parameters or reason; part of the record
	fin    bool
	length int // bytes of the frame
}

// parseFrame reads the first frame of a record's rest.
func parseFrame(b []byte) (f frame, rest []byte, err error) {
	r := reader{b: b}
	f.typ = r.varint()
	switch f.typ {
	case typePadding:
	case typeReset, typeResetAt:
		f.id, f.code, f.value = r.varint(), r.varint(), r.varint()
		if f.typ == typeResetAt {
			if f.at = r.varint(); f.at > f.value {
				return f, nil, transportError(quic.FrameEncodingError, "RESET_STREAM_AT beyond the final size")
			}
		}
	case typeStopSending:
		f.id, f.code = r.varint(), r.varint()
	case typeMaxStreamData, typeStreamDataBlocked:
		f.id, f.value = r.varint(), r.varint()
	case typeMaxData, typeDataBlocked, typePing, typePong:
		f.value = r.varint()
	case typeMaxStreamsBidi, typeMaxStreamsUni, typeStreamsBlocked, typeStreamsBlocked + 1:
		if f.value = r.varint(); f.value > maxStreams {
			return f, nil, transportError(quic.FrameEncodingError, "limit on streams above 2^60")
		}
		if f.typ > typeStreamsBlocked {
			f.typ = typeStreamsBlocked
		}
	case typeClose, typeCloseApplication:
		f.code = r.varint()
		if f.typ == typeClose {
			r.varint() // the frame type that caused it
		}
		f.data = r.bytes(r.varint())
	case typeDatagram:
		f.data = r.bytes(uint64(len(r.b)))
	case typeDatagramLength:
		f.data = r.bytes(r.varint())
		f.typ = typeDatagram
	case typeParameters:
		f.data = r.bytes(r.varint())
	default:
		if f.typ&^uint64(bitFin|bitLength|bitOffset) != typeStream {
			return f, nil, transportError(quic.FrameEncodingError, fmt.Sprintf("frame of type %#x", f.typ))
		}
		f.id, f.fin = r.varint(), f.typ&bitFin != 0
		if f.typ&bitOffset != 0 {
			f.value = r.varint()
		}
		n := uint64(len(r.b))
		if f.typ&bitLength != 0 {
			n = r.varint()
		}
		f.data, f.typ = r.bytes(n), typeStream
		if f.value+uint64(len(f.data)) > quicvarint.Max {
			return f, nil, transportError(quic.FrameEncodingError, "stream longer than 2^62-1 bytes")
		}
	}
	if r.short {
		return f, nil, transportError(quic.FrameEncodingError, "truncated frame")
	}
	f.length = len(b) - len(r.b)
	return f, r.b, nil
}

// append encodes a frame. STREAM frames have an offset and a length, because other frames may follow.
func (f frame) append(b []byte) []byte {
	switch f.typ {
	case typePadding:
		return append(b, typePadding)
	case typeStream:
		t := byte(typeStream | bitOffset | bitLength)
		if f.fin {
			t |= bitFin
		}
		b = appendVarints(append(b, t), f.id, f.value, uint64(len(f.data)))
		return append(b, f.data...)
	case typeReset:
		return appendVarints(append(b, typeReset), f.id, f.code, f.value)
	case typeResetAt:
		return appendVarints(append(b, typeResetAt), f.id, f.code, f.value, f.at)
	case typeStopSending:
		return appendVarints(append(b, typeStopSending), f.id, f.code)
	case typeMaxStreamData, typeStreamDataBlocked:
		return appendVarints(b, f.typ, f.id, f.value)
	case typeClose:
		b = appendVarints(b, f.typ, f.code, 0, uint64(len(f.data)))
		return append(b, f.data...)
	case typeCloseApplication:
		b = appendVarints(b, f.typ, f.code, uint64(len(f.data)))
		return append(b, f.data...)
	case typeDatagram:
		b = appendVarints(b, typeDatagramLength, uint64(len(f.data)))
		return append(b, f.data...)
	case typeParameters:
		b = appendVarints(b, f.typ, uint64(len(f.data)))
		return append(b, f.data...)
	}
	return appendVarints(b, f.typ, f.value)
}

// streamOverhead is the maximum size of a STREAM frame without its payload.
const streamOverhead = 1 + 8 + 8 + 4

// resetSize is the maximum size of a frame about a stream without payload.
const resetSize = 1 + 4*8

func appendVarints(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = quicvarint.Append(b, v)
	}
	return b
}

// reader reads a record. Reading beyond its end sets short and returns zeros.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) varint() uint64 {
	v, n, err := quicvarint.Parse(r.b)
	if err != nil {
		r.b, r.short = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.short = nil, true
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// Transport parameters (RFC 9000 §18.2, RFC 9221, draft-ietf-quic-qmux).
const (
	parameterIdle         = 0x01
	parameterData         = 0x04
	parameterBidiLocal    = 0x05
	parameterBidiRemote   = 0x06
	parameterUni          = 0x07
	parameterStreamsBidi  = 0x08
	parameterStreamsUni   = 0x09
	parameterResetAt      = 0x1d
	parameterDatagram     = 0x20
	parameterRecord       = 0x0571c59429cd0845
	lastForbidden         = 0x10 // with 0x00, 0x02, 0x03, and 0x0a to 0x10
	defaultRecord         = 16382
	maxTransportParameter = 64 // parameters accepted
)

// parameters are an endpoint's transport parameters.
type parameters struct {
	idle                    time.Duration // 0 means none
	data                    uint64        // bytes, as all windows
	bidiLocal, bidiRemote   uint64
	uni                     uint64
	streamsBidi, streamsUni uint64
	datagram                uint64 // largest DATAGRAM frame; 0 means none
	record                  uint64 // largest record
	resetAt                 bool   // accepts RESET_STREAM_AT
}

func (p parameters) encode() (b []byte) {
	for _, v := range []struct{ id, value uint64 }{
		{parameterIdle, uint64(p.idle.Milliseconds())},
		{parameterData, p.data},
		{parameterBidiLocal, p.bidiLocal},
		{parameterBidiRemote, p.bidiRemote},
		{parameterUni, p.uni},
		{parameterStreamsBidi, p.streamsBidi},
		{parameterStreamsUni, p.streamsUni},
		{parameterDatagram, p.datagram},
		{parameterRecord, p.record},
	} {
		if v.value > 0 {
			b = appendVarints(b, v.id, uint64(quicvarint.Len(v.value)), v.value)
		}
	}
	if p.resetAt {
		b = appendVarints(b, parameterResetAt, 0)
	}
	return b
}

func parseParameters(b []byte) (parameters, error) {
	p := parameters{record: defaultRecord}
	seen := map[uint64]bool{}
	for r := (reader{b: b}); len(r.b) > 0; {
		id := r.varint()
		value := reader{b: r.bytes(r.varint())}
		if r.short {
			return p, parameterError("truncated")
		}
		if seen[id] || len(seen) == maxTransportParameter {
			return p, parameterError("repeated, or too many")
		}
		seen[id] = true
		var to *uint64
		var idle uint64
		switch id {
		case parameterIdle:
			to = &idle
		case parameterData:
			to = &p.data
		case parameterBidiLocal:
			to = &p.bidiLocal
		case parameterBidiRemote:
			to = &p.bidiRemote
		case parameterUni:
			to = &p.uni
		case parameterStreamsBidi:
			to = &p.streamsBidi
		case parameterStreamsUni:
			to = &p.streamsUni
		case parameterDatagram:
			to = &p.datagram
		case parameterRecord:
			to = &p.record
		case parameterResetAt:
			if p.resetAt = true; len(value.b) > 0 {
				return p, parameterError("reset_stream_at has a value")
			}
			continue
		default:
			if id <= lastForbidden {
				return p, parameterError(fmt.Sprintf("%#x is forbidden", id))
			}
			continue
		}
		if *to = value.varint(); value.short || len(value.b) > 0 {
			return p, parameterError(fmt.Sprintf("%#x is not a number", id))
		}
		if id == parameterIdle {
			p.idle = time.Duration(min(idle, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
		}
	}
	if p.record < defaultRecord || p.streamsBidi > maxStreams || p.streamsUni > maxStreams {
		return p, parameterError("out of range")
	}
	return p, nil
}

func parameterError(text string) error {
	return transportError(quic.TransportParameterError, "transport parameters: "+text)
}

func transportError(code quic.TransportErrorCode, reason string) error {
	return &quic.TransportError{ErrorCode: code, ErrorMessage: reason}
}

// errClosed is the error of a link that ended without CONNECTION_CLOSE.
var errClosed = fmt.Errorf("qmux: the connection was cut: %w", io.ErrUnexpectedEOF)
