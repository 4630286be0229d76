package qoe

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// ReceiptSize is the length of a receipt in bytes. With its MOQT object datagram header a receipt is
// 200 to 240 bytes long, so the edge pair's controller can tell it from a bare acknowledgement by
// size.
const ReceiptSize = 200

const receiptVersion = 1

// Receipt is the payload of the datagram object that a viewer sends on its receipts track for every
// displayed frame. Wire format, little-endian: version u8 = 1, u8 0, camera u16, sequence u32,
// delay i32 (µs), zero padding.
type Receipt struct {
	Camera   uint16
	Sequence uint32        // of the displayed frame
	Delay    time.Duration // frame delay, in microseconds on the wire, within ±35 minutes
}

// Append appends the wire form of r to b.
func (r Receipt) Append(b []byte) []byte {
	var wire [ReceiptSize]byte
	wire[0] = receiptVersion
	binary.LittleEndian.PutUint16(wire[2:], r.Camera)
	binary.LittleEndian.PutUint32(wire[4:], r.Sequence)
	us := min(max(r.Delay.Microseconds(), math.MinInt32), math.MaxInt32)
	binary.LittleEndian.PutUint32(wire[8:], uint32(int32(us)))
	return append(b, wire[:]...)
}

// ParseReceipt reads a receipt's wire form.
func ParseReceipt(b []byte) (Receipt, error) {
	if len(b) < ReceiptSize {
		return Receipt{}, fmt.Errorf("receipt: %d bytes, needs %d", len(b), ReceiptSize)
	}
	if b[0] != receiptVersion {
		return Receipt{}, fmt.Errorf("receipt: version %d; only %d is known", b[0], receiptVersion)
	}
	return Receipt{
		Camera:   binary.LittleEndian.Uint16(b[2:]),
		Sequence: binary.LittleEndian.Uint32(b[4:]),
		Delay:    time.Duration(int32(binary.LittleEndian.Uint32(b[8:]))) * time.Microsecond,
	}, nil
}
