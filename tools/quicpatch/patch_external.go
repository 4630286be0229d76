package main

import (
	"fmt"
	"go/ast"
	"strings"
)

// Changes that insert calls to the hooks for external packets into quic-go's files
// (tree/external.go.txt, docs/adr/0005-quic-go-hooks.md).

// change replaces a statement or an expression with text, in which "$" stands for the old code.
type change struct {
	in   string // function or method; struct type T if the change embeds fields
	was  string // "" for the fields of a struct, "func" for the function's name
	text string
}

// patchExternal applies changes, each of which must match exactly once.
func patchExternal(name string, src []byte, changes ...change) ([]byte, error) {
	s, err := parse(name, src)
	if err != nil {
		return nil, err
	}
	var edits []edit
	for _, c := range changes {
		found := 0
		for _, decl := range s.file.Decls {
			switch decl := decl.(type) {
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok && c.was == "" {
						found += s.embed(&edits, t, c.in, c.text)
					}
				}
			case *ast.FuncDecl:
				if decl.Name.Name != c.in || c.was == "" {
					continue
				}
				if c.was == "func" {
					found++
					edits = append(edits, s.replace(decl.Name, c.text))
					continue
				}
				ast.Inspect(decl.Body, func(n ast.Node) bool {
					if n == nil || s.text(n) != c.was {
						return true
					}
					found++
					edits = append(edits, s.replace(n, strings.ReplaceAll(c.text, "$", c.was)))
					return false
				})
			}
		}
		if found != 1 {
			return nil, fmt.Errorf("found %q %d times in %s, want once", c.was, found, c.in)
		}
	}
	return apply(src, edits)
}

// patchSentPacketHandler reports sent and acknowledged packets to the hooks, and compares packets
// by sending order where their numbers do not reflect it:
//
//   - congestion control receives a packet's number in that order;
//   - packets count as lost if they were sent before an acknowledged one; the packet
//     threshold applies to packets of the same sender;
//   - the loss timer is set for the oldest packet;
//   - ECN counts are also read from ACKs of numbers below the largest acknowledged.
func patchSentPacketHandler(src []byte) ([]byte, error) {
	return patchExternal(
		"sent_packet_handler.go",
		src,
		change{"sentPacketHandler", "", "external *External"},
		change{"sentPacketHandler", "", "runHandler\n\tblackHole"},
		change{"SentPacket", "getPacket()", "h.newPacket()"},
		change{
			"SentPacket", "h.congestion.OnPacketSent(t, h.bytesInFlight, pn, size, isAckEliciting)",
			"h.congestion.OnPacketSent(t, h.bytesInFlight, h.external.sent(pn, p), size, isAckEliciting)",
		},
		change{
			"ReceivedAck",
			"var spuriousLosses []protocol.PacketNumber",
			"h.external.acked(ack, encLevel, ackedPackets, rcvTime)\n\th.blackHole.onAcked(ackedPackets)\n\t$",
		},
		change{"ReceivedAck", "largestAcked > pnSpace.largestAcked", "($ || h.external.isNewer(ack))"},
		change{
			"ReceivedAck", "h.congestion.OnCongestionEvent(largestAcked, 0, priorInFlight)",
			"h.congestion.OnCongestionEvent(h.external.newest(largestAcked), 0, priorInFlight)",
		},
		change{
			"ReceivedAck",
			"h.congestion.OnSpuriousLoss(pn)",
			"h.congestion.OnSpuriousLoss(h.external.spurious(pn))\n\t\th.blackHole = blackHole{}",
		},
		change{
			"ReceivedAck", "h.congestion.OnPacketAcked(p.PacketNumber, p.Length, priorInFlight, rcvTime)",
			"h.congestion.OnPacketAcked(p.inOrder(p.PacketNumber), p.Length, priorInFlight, rcvTime)",
		},
		change{
			"detectLostPackets",
			"pn > pnSpace.largestAcked",
			"!h.external.sentBeforeAcked(pn, p, pnSpace.largestAcked)",
		},
		change{"detectLostPackets", "break", "if h.external.isPast(pn) {\n\t\t\t\tbreak\n\t\t\t}\n\t\t\tcontinue"},
		change{
			"detectLostPackets",
			"distance >= packetThreshold",
			"h.external.distance(p, distance) >= packetThreshold",
		},
		change{
			"detectLostPackets",
			"pnSpace.lossTime.IsZero()",
			"$ || p.SendTime.Add(lossDelay).Before(pnSpace.lossTime)",
		},
		change{"detectLostPackets", "h.lostPackets.Add(pn, p.SendTime)", "$\n\t\t\t\th.external.lost(pn, p)\n\t\t\t\th.blackHole.onLost(p)"},
		change{
			"detectLostPackets", "h.congestion.OnCongestionEvent(pn, p.Length, priorInFlight)",
			"h.congestion.OnCongestionEvent(p.inOrder(pn), p.Length, priorInFlight)",
		},
		change{"detectLostPackets", "h.ecnTracker != nil", "$ && !p.outside"},
		change{"MigratedPath", "h.lostPackets.Reset()", "$\n\th.external.migrated()\n\th.blackHole = blackHole{}"},
	)
}

// patchSentPacketHistory excludes external packets from probes, because they cannot be
// retransmitted.
func patchSentPacketHistory(src []byte) ([]byte, error) {
	return patchExternal("sent_packet_history.go", src,
		change{"FirstOutstanding", "p.Outstanding()", "$ && !p.outside"})
}

// patchPacket adds the hooks' fields to packets.
func patchPacket(src []byte) ([]byte, error) {
	return patchExternal("packet.go", src,
		change{"packet", "", "externalPacket"},
		change{"packet", "", "runPacket"},
		change{"putPacket", "packetPool.Put(p)", "if !p.inRun {\n\t\t$\n\t}"},
		change{"getPacket", "p.isPathProbePacket = false", "$\n\tp.externalPacket = externalPacket{}"})
}

// patchECN reads an external packet's ECN mark from the packet.
func patchECN(src []byte) ([]byte, error) {
	return patchExternal("ecn.go", src,
		change{"HandleNewlyAcked", "e.ecnMarking(p.PacketNumber)", "p.ecnMarking(e)"})
}

// patchUpdatableAEAD keeps the traffic secrets, reports key updates, and delays them if necessary.
func patchUpdatableAEAD(src []byte) ([]byte, error) {
	return patchExternal(
		"updatable_aead.go",
		src,
		change{"updatableAEAD", "", "externalKeys"},
		change{
			"SetReadKey",
			"a.nextRcvTrafficSecret = a.getNextTrafficSecret(suite.Hash, trafficSecret)",
			"a.keepReadSecret(trafficSecret)\n\t$",
		},
		change{
			"SetWriteKey",
			"a.nextSendTrafficSecret = a.getNextTrafficSecret(suite.Hash, trafficSecret)",
			"a.keepWriteSecret(trafficSecret)\n\t$",
		},
		change{
			"rollKeys",
			"a.keyPhase++",
			"$\n\ta.readSecret, a.writeSecret = a.nextRcvTrafficSecret, a.nextSendTrafficSecret",
		},
		change{
			"rollKeys",
			"a.nextSendAEAD = createAEAD(a.suite, a.nextSendTrafficSecret, a.version)",
			"$\n\ta.tellRolled()",
		},
		change{"shouldInitiateKeyUpdate", "!a.updateAllowed()", "$ || a.isUpdateHeld()"},
	)
}

// patchConnectionExternal makes the run loop and the handling of ACKs wait for the registration of
// external packets:
//
//   - handleAckFrame becomes processAckFrame, with the receive time of the ACK as an
//     argument, because an ACK may wait;
//   - the run loop calls drainExternal before the loss timer and before sending.
func patchConnectionExternal(src []byte) ([]byte, error) {
	return patchExternal("connection.go", src,
		change{"Conn", "", "connExternal"},
		change{"handleAckFrame", "func", "processAckFrame"},
		change{"handleAckFrame", "c.lastPacketReceivedTime", "rcvTime"},
		change{"run", "now := monotime.Now()", `$
		if err := c.drainExternal(now); err != nil {
			c.setCloseError(&closeError{err: err})
			break runLoop
		}`})
}
