package main

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sources holds the files of this program that determine the patched tree.
//
//go:embed patch.go patch_external.go patch_idle.go patch_receiving.go patch_sending.go patch_webtransport.go tree
var sources embed.FS

// added maps the names of our files in quic-go's tree to the embedded files with their text.
var added = map[string]string{
	"black_hole.go":                                "tree/black_hole.go.txt",
	"black_hole_test.go":                           "tree/black_hole_test.go.txt",
	"congestion_controller.go":                     "tree/congestion_controller.go.txt",
	"external.go":                                  "tree/external.go.txt",
	"external_test.go":                             "tree/external_test.go.txt",
	"frame_sorter_gaps.go":                         "tree/frame_sorter_gaps.go.txt",
	"frame_sorter_gaps_test.go":                    "tree/frame_sorter_gaps_test.go.txt",
	"internal/ackhandler/acks.go":                  "tree/internal_ackhandler_acks.go.txt",
	"internal/ackhandler/backoff.go":               "tree/internal_ackhandler_backoff.go.txt",
	"internal/ackhandler/black_hole.go":            "tree/internal_ackhandler_black_hole.go.txt",
	"internal/ackhandler/controller.go":            "tree/internal_ackhandler_controller.go.txt",
	"internal/ackhandler/external.go":              "tree/internal_ackhandler_external.go.txt",
	"internal/ackhandler/external_test.go":         "tree/internal_ackhandler_external_test.go.txt",
	"internal/ackhandler/external_numbers.go":      "tree/internal_ackhandler_external_numbers.go.txt",
	"internal/ackhandler/external_numbers_test.go": "tree/internal_ackhandler_external_numbers_test.go.txt",
	"internal/ackhandler/run.go":                   "tree/internal_ackhandler_run.go.txt",
	"internal/handshake/external.go":               "tree/internal_handshake_external.go.txt",
	"internal/handshake/external_test.go":          "tree/internal_handshake_external_test.go.txt",
	"internal/handshake/finished.go":               "tree/internal_handshake_finished.go.txt",
	"internal/handshake/finished_test.go":          "tree/internal_handshake_finished_test.go.txt",
	"internal/wire/packet_frame.go":                "tree/internal_wire_packet_frame.go.txt",
	"internal/wire/shared_frame.go":                "tree/internal_wire_shared_frame.go.txt",
	"outage.go":                                    "tree/outage.go.txt",
	"outage_test.go":                               "tree/outage_test.go.txt",
	"path_conn_id.go":                              "tree/path_conn_id.go.txt",
	"path_conn_id_test.go":                         "tree/path_conn_id_test.go.txt",
	"receive_direct.go":                            "tree/receive_direct.go.txt",
	"receive_direct_test.go":                       "tree/receive_direct_test.go.txt",
	"rest.go":                                      "tree/rest.go.txt",
	"rest_test.go":                                 "tree/rest_test.go.txt",
	"receive_piece.go":                             "tree/receive_piece.go.txt",
	"receive_piece_linux_test.go":                  "tree/receive_piece_linux_test.go.txt",
	"reset_credit.go":                              "tree/reset_credit.go.txt",
	"reset_credit_test.go":                         "tree/reset_credit_test.go.txt",
	"reset_size.go":                                "tree/reset_size.go.txt",
	"reset_size_test.go":                           "tree/reset_size_test.go.txt",
	"http3/rest.go":                                "tree/http3_rest.go.txt",
	"http3/rest_test.go":                           "tree/http3_rest_test.go.txt",
	"idle.go":                                      "tree/idle.go.txt",
	"idle_test.go":                                 "tree/idle_test.go.txt",
	"send_direct.go":                               "tree/send_direct.go.txt",
	"server_retry.go":                              "tree/server_retry.go.txt",
	"server_retry_test.go":                         "tree/server_retry_test.go.txt",
	"simulated_test.go":                            "tree/simulated_test.go.txt",
	"stream_order.go":                              "tree/stream_order.go.txt",
	"stream_order_test.go":                         "tree/stream_order_test.go.txt",
	"stream_repair.go":                             "tree/stream_repair.go.txt",
	"stream_repair_test.go":                        "tree/stream_repair_test.go.txt",
	"stream_grant.go":                              "tree/stream_grant.go.txt",
	"stream_grant_test.go":                         "tree/stream_grant_test.go.txt",
	"stream_run.go":                                "tree/stream_run.go.txt",
	"stream_run_test.go":                           "tree/stream_run_test.go.txt",
	"stream_shared.go":                             "tree/stream_shared.go.txt",
	"stream_source.go":                             "tree/stream_source.go.txt",
	"stream_source_test.go":                        "tree/stream_source_test.go.txt",
	"stream_shared_test.go":                        "tree/stream_shared_test.go.txt",
	"sys_conn_piece.go":                            "tree/sys_conn_piece.go.txt",
}

// changed maps quic-go's modified files to their changes.
var changed = map[string]func(src []byte) ([]byte, error){
	"buffer_pool.go": patchBufferPool,
	"connection.go": inTurn(patchConnection, patchConnectionPath, patchConnectionExternal, patchConnectionSending,
		patchConnectionPieces, patchConnectionStreams, patchConnectionIdle),
	"crypto_stream.go":   patchCryptoStream,
	"conn_id_manager.go": patchConnIDManager,
	"datagram_queue.go": inTurn(
		setConstant("maxDatagramRcvQueueLen", receivedDatagrams),
		patchDatagramQueue,
	),
	"frame_sorter.go":      patchFrameSorter,
	"framer.go":            patchFramer,
	"http3/conn.go":        patchRawConn,
	"http3/frames.go":      patchFrameParser,
	"http3/server_conn.go": patchServerConn,
	"http3/state_tracking_stream.go": inTurn(
		setConstant("streamDatagramQueueLen", receivedDatagrams),
		patchTrackedStream,
	),
	"internal/ackhandler/ecn.go":                 patchECN,
	"internal/ackhandler/packet.go":              patchPacket,
	"internal/ackhandler/sent_packet_handler.go": patchSentPacketHandler,
	"internal/ackhandler/sent_packet_history.go": patchSentPacketHistory,
	"internal/handshake/crypto_setup.go":         patchCryptoSetup,
	"internal/handshake/updatable_aead.go":       patchUpdatableAEAD,
	"internal/protocol/params.go":                setConstant("MaxConnUnprocessedPackets", unprocessedPackets),
	"internal/protocol/protocol.go": inTurn(
		setConstant("MaxLargePacketBufferSize", sendBuffer),
		setConstant("MinStatelessResetSize", "MinReceivedStatelessResetSize"),
	),
	"internal/wire/stream_frame.go": inTurn(patchStreamFrame, patchPacketFrame),
	"receive_stream.go":             inTurn(patchReceiveStream, patchReceiveStreamReady),
	"send_conn.go":                  patchSendConn,
	"send_stream.go":                inTurn(patchSendStream, patchSendStreamSharing),
	"streams_map_incoming.go":       inTurn(patchIncomingStreams, patchIncomingStreamsReady),
	"sys_conn_oob.go":               patchOOBConn,
	"server.go":                     patchServer,
	"transport.go":                  patchTransport,
}

// inTurn combines several changes to one file.
func inTurn(changes ...func([]byte) ([]byte, error)) func([]byte) ([]byte, error) {
	return func(src []byte) (_ []byte, err error) {
		for _, change := range changes {
			if src, err = change(src); err != nil {
				return nil, err
			}
		}
		return src, nil
	}
}

// stamp returns a hash of everything that determines the tree.
func (m module) stamp() string {
	h := sha256.New()
	parts := []string{
		m.path,
		m.version,
		text("patch.go"),
		text("patch_external.go"),
		text("patch_idle.go"),
		text("patch_receiving.go"),
		text("patch_sending.go"),
		text("patch_webtransport.go"),
	}
	for _, name := range slices.Sorted(maps.Keys(m.added)) {
		parts = append(parts, name, text(m.added[name]))
	}
	for _, s := range parts {
		fmt.Fprintf(h, "%d\n%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)) + "\n"
}

// text returns one of the embedded files.
func text(name string) string {
	data, err := sources.ReadFile(name)
	if err != nil {
		panic(err) // all names are embedded
	}
	return string(data)
}

// patch applies the changes to the copy in dir.
func (m module) patch(dir string) error {
	for name, from := range m.added {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text(from)), 0o644); err != nil {
			return err
		}
	}
	for name, change := range m.changed {
		path := filepath.Join(dir, filepath.FromSlash(name))
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out, err := change(src)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(path, out, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// source is a parsed file of a module.
type source struct {
	src  []byte
	fset *token.FileSet
	file *ast.File
}

func parse(name string, src []byte) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	return source{src, fset, file}, err
}

func (s source) offset(p token.Pos) int { return s.fset.Position(p).Offset }

func (s source) text(n ast.Node) string { return string(s.src[s.offset(n.Pos()):s.offset(n.End())]) }

// insert inserts text before p.
func (s source) insert(p token.Pos, text string) edit { return edit{s.offset(p), s.offset(p), text} }

// replace replaces n with text.
func (s source) replace(n ast.Node, text string) edit {
	return edit{s.offset(n.Pos()), s.offset(n.End()), text}
}

// embed adds an embedded field to struct type name if t declares it. It returns the number of
// matches.
func (s source) embed(edits *[]edit, t *ast.TypeSpec, name, field string) int {
	if of, ok := t.Type.(*ast.StructType); ok && t.Name.Name == name {
		*edits = append(*edits, s.insert(of.Fields.Opening+1, "\n\t"+field+"\n"))
		return 1
	}
	return 0
}

// edit replaces the bytes [from, to) of a file with text.
type edit struct {
	from, to int
	text     string
}

// patchConnection adds external congestion control as follows:
//
//   - the result of ackhandler.NewSentPacketHandler in newConnection and
//     newClientConnection is passed to ackhandler.WithController with the
//     connection's context;
//   - the run loop sends with triggerSendingControlled.
func patchConnection(src []byte) ([]byte, error) {
	s, err := parse("connection.go", src)
	if err != nil {
		return nil, err
	}
	var edits []edit
	var constructed, loops int
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if len(n.Lhs) != 1 || len(n.Rhs) != 1 {
				return true
			}
			call, ok := n.Rhs[0].(*ast.CallExpr)
			lhs, isField := n.Lhs[0].(*ast.SelectorExpr)
			if !ok || !isField || s.text(call.Fun) != "ackhandler.NewSentPacketHandler" || len(call.Args) < 2 {
				return true
			}
			constructed++
			edits = append(edits,
				s.insert(call.Pos(), "ackhandler.WithController("+s.text(lhs.X)+".ctx, "),
				s.insert(call.End(), ", "+s.text(call.Args[1])+")"))
		case *ast.FuncDecl:
			if n.Name.Name != "run" || n.Recv == nil {
				return true
			}
			ast.Inspect(n.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && strings.HasSuffix(s.text(call.Fun), ".triggerSending") {
					loops++
					edits = append(edits, s.insert(call.Lparen, "Controlled"))
				}
				return true
			})
		}
		return true
	})
	if constructed != 2 || loops != 1 {
		return nil, fmt.Errorf(
			"found %d constructions of the sent packet handler and %d calls of triggerSending in the run loop; want 2 and 1",
			constructed,
			loops,
		)
	}
	return apply(src, edits)
}

// unprocessedPackets is the number of received packets that may wait for a connection's goroutine.
// quic-go's 256 packets arrive within 7 ms at 400 Mbit/s. A process that is not scheduled for that
// long would lose a burst, which the sender treats as congestion.
const unprocessedPackets = "2048"

// receivedDatagrams is the number of received DATAGRAM frames that may wait for the application. A
// camera frame is a burst of hundreds; quic-go drops frames beyond 128, or beyond 32 in a
// WebTransport session.
const receivedDatagrams = "2048"

// patchFrameSorter bounds the gaps of a stream by the data between them, and finds the gap of a
// frame without a search from the start, as follows:
//
//   - push gets the limit from maxGaps;
//   - push calls findStartGapNear, which starts at the last gap found;
//   - a frameSorter gets the fields for both.
func patchFrameSorter(src []byte) ([]byte, error) {
	s, err := parse("frame_sorter.go", src)
	if err != nil {
		return nil, err
	}
	var edits []edit
	var structs, limits, searches int
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			structs += s.embed(&edits, n, "frameSorter", "gapSearch")
		case *ast.BinaryExpr:
			if n.Op == token.GTR && s.text(n.X) == "s.gaps.Len()" && s.text(n.Y) == "protocol.MaxStreamFrameSorterGaps" {
				limits++
				edits = append(edits, s.replace(n.Y, "s.maxGaps()"))
			}
		case *ast.CallExpr:
			if s.text(n.Fun) == "s.findStartGap" {
				searches++
				edits = append(edits, s.insert(n.Lparen, "Near"))
			}
		}
		return true
	})
	if structs != 1 || limits != 1 || searches != 1 {
		return nil, fmt.Errorf(
			"found %d frameSorter types, %d gap limit comparisons and %d gap searches; want 1 of each",
			structs,
			limits,
			searches,
		)
	}
	return apply(src, edits)
}

// patchFramer sends streams of the same urgency in the order set with SetOrder, both for new and
// for lost data:
//
//   - non-incremental streams wait in a streamQueue instead of a minheap.Heap, whose
//     import is removed;
//   - its method add queues them by the stream's order;
//   - streams with lost data wait in a repairQueue instead of a ring buffer;
//   - Append retransmits in a closure, repair, which stops where new data goes first.
//     It is called before each new frame, and at the end with the remaining space;
//   - UpdateStreamPriority calls repairAgain.
func patchFramer(src []byte) ([]byte, error) {
	s, err := parse("framer.go", src)
	if err != nil {
		return nil, err
	}
	var edits []edit
	var imports, queues, pushes, repairs, loops, updates int
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			if strings.HasSuffix(n.Path.Value, `/utils/minheap"`) {
				imports++
				edits = append(edits, s.replace(n, ""))
			}
		case *ast.Field:
			if len(n.Names) != 1 {
				return true
			}
			switch n.Names[0].Name {
			case "nonIncrementalStreams":
				queues++
				edits = append(edits, s.replace(n.Type, "[8]streamQueue"))
			case "retransmissionQueue":
				queues++
				edits = append(edits, s.replace(n.Type, "[8]repairQueue"))
			}
		case *ast.CallExpr:
			switch {
			case s.text(n.Fun) == "f.nonIncrementalStreams[urgency].Push" && len(n.Args) == 2:
				pushes++
				edits = append(edits, s.replace(n, "f.nonIncrementalStreams[urgency].add("+s.text(n.Args[0])+", "+s.text(n.Args[1])+", str)"))
			case strings.HasPrefix(s.text(n.Fun), "f.retransmissionQueue[") &&
				strings.HasSuffix(s.text(n.Fun), ".PushBack") && len(n.Args) == 1:
				pushes++
				edits = append(edits, s.insert(n.Rparen, ", str"))
			}
		case *ast.LabeledStmt:
			if n.Label.Name == "retransmissions" {
				repairs++
				edits = append(edits, s.insert(n.Pos(), "repair := func(all bool) {\n"), s.insert(n.End(), "\n}"))
			}
		case *ast.ForStmt:
			if n.Cond != nil && strings.HasPrefix(s.text(n.Cond), "!bucket.Empty() && ") {
				repairs++
				edits = append(edits, s.insert(n.Cond.End(), " && (all || !f.newDataFirst(urgency))"))
			}
		case *ast.RangeStmt:
			switch s.text(n.X) {
			case "numActiveStreams":
				loops++
				edits = append(edits, s.insert(n.Body.Lbrace+1, "\nrepair(false)"))
			case "f.incrementalStreams":
				if n.Key != nil && len(n.Body.List) == 2 { // in Append; the loop in HasData has one statement
					loops++
					edits = append(edits, s.insert(n.End(), "\nrepair(true)"))
				}
			}
		case *ast.FuncDecl:
			if n.Name.Name == "UpdateStreamPriority" && len(n.Body.List) > 2 {
				updates++
				edits = append(edits, s.insert(n.Body.List[2].Pos(), "f.repairAgain(id)\n"))
			}
		}
		return true
	})
	if imports != 1 || queues != 2 || pushes != 4 || repairs != 2 || loops != 2 || updates != 1 {
		return nil, fmt.Errorf(
			"found %d imports of minheap, %d queue fields, %d calls that add to queues, %d parts of the retransmission loop, %d loops over new data and %d UpdateStreamPriority functions; want 1, 2, 4, 2, 2 and 1",
			imports,
			queues,
			pushes,
			repairs,
			loops,
			updates,
		)
	}
	return apply(src, edits)
}

// setConstant changes the value of a constant.
func setConstant(name, value string) func(src []byte) ([]byte, error) {
	return func(src []byte) ([]byte, error) {
		s, err := parse(name, src)
		if err != nil {
			return nil, err
		}
		var edits []edit
		ast.Inspect(s.file, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if ok && len(v.Names) == 1 && len(v.Values) == 1 && v.Names[0].Name == name {
				edits = append(edits, s.replace(v.Values[0], value))
			}
			return true
		})
		if len(edits) != 1 {
			return nil, fmt.Errorf("found %d declarations of %s; want 1", len(edits), name)
		}
		return apply(src, edits)
	}
}

// patchSendConn renames a connection's Write to write. Our Write calls it and decides which errors
// are temporary. An sconn gets the fields for that decision.
func patchSendConn(src []byte) ([]byte, error) {
	s, err := parse("send_conn.go", src)
	if err != nil {
		return nil, err
	}
	var edits []edit
	var structs, writes int
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			structs += s.embed(&edits, n, "sconn", "outage")
		case *ast.FuncDecl:
			if n.Name.Name == "Write" && n.Recv != nil && s.text(n.Recv.List[0].Type) == "*sconn" {
				writes++
				edits = append(edits, s.replace(n.Name, "write"))
			}
		}
		return true
	})
	if structs != 1 || writes != 1 {
		return nil, fmt.Errorf("found %d sconn types and %d Write methods; want 1 of each", structs, writes)
	}
	return apply(src, edits)
}

// patchConnectionPath calls useConnIDOf when the connection switches to another path. It also
// limits the size of PTO probe packets.
func patchConnectionPath(src []byte) ([]byte, error) {
	return patchExternal(
		"connection.go",
		src,
		change{
			"handleShortHeaderPacket",
			"c.pathManager.SwitchToPath(p.remoteAddr)",
			"c.useConnIDOf(p.remoteAddr)\n\t$",
		},
		change{
			"sendProbePacket",
			"c.packer.PackPTOProbePacket(encLevel, c.maxPacketSize(), false, now, c.version)",
			"c.packer.PackPTOProbePacket(encLevel, c.probeSize(), false, now, c.version)",
		},
		change{
			"sendProbePacket",
			"c.packer.PackPTOProbePacket(encLevel, c.maxPacketSize(), true, now, c.version)",
			"c.packer.PackPTOProbePacket(encLevel, c.probeSize(), true, now, c.version)",
		},
	)
}

// patchConnIDManager keeps add from retiring a connection ID in use, or reusing an old one, when a
// NEW_CONNECTION_ID frame is retransmitted.
func patchConnIDManager(src []byte) ([]byte, error) {
	return patchExternal(
		"conn_id_manager.go",
		src,
		change{
			"add", "f.SequenceNumber < max(h.activeSequenceNumber, h.highestProbingID) || f.SequenceNumber < h.highestRetired",
			"!h.isInUse(f.SequenceNumber) && ($)",
		},
		change{
			"add",
			"f.SequenceNumber == h.activeSequenceNumber",
			"h.isInUse(f.SequenceNumber) || f.SequenceNumber == h.highestProbingID",
		},
	)
}

// patchSendStream keeps resets within flow control and gives streams an order:
//
//   - a SendStream gets the fields for that;
//   - CancelWrite calls reserveReset after it has queued the reset and truncated the
//     unreliable data;
//   - popStreamFrame calls releaseReset;
//   - a frame lost after a reset loses its FIN, and only its reliable data is
//     retransmitted;
//   - the reset of handleStopSendingFrame uses finalSize.
func patchSendStream(src []byte) ([]byte, error) {
	s, err := parse("send_stream.go", src)
	if err != nil {
		return nil, err
	}
	var edits []edit
	var structs, reserves, releases, fins, sizes int
	// before inserts text before the last occurrence of statement at the top level of f.
	before := func(f *ast.FuncDecl, statement, text string) int {
		for _, stmt := range slices.Backward(f.Body.List) {
			if s.text(stmt) == statement {
				edits = append(edits, s.insert(stmt.Pos(), text+"\n\t"))
				return 1
			}
		}
		return 0
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			structs += s.embed(&edits, n, "SendStream", "resetCredit\n\tstreamOrder")
		case *ast.FuncDecl:
			if n.Recv != nil && s.text(n.Recv.List[0].Type) == "*sendStreamAckHandler" && n.Name.Name == "OnLost" {
				fins += before(n, "sf.DataLenPresent = true", "if s.resetErr != nil {\n\t\tsf.Fin = false\n\t}")
			}
			if n.Recv == nil || s.text(n.Recv.List[0].Type) != "*SendStream" {
				return true
			}
			switch n.Name.Name {
			case "CancelWrite":
				reserves += before(n, "s.mutex.Unlock()", "s.reserveReset()")
			case "popStreamFrame":
				releases += before(n, "s.mutex.Unlock()", "s.releaseReset()")
			case "handleStopSendingFrame":
				ast.Inspect(n, func(n ast.Node) bool {
					if kv, ok := n.(*ast.KeyValueExpr); ok && s.text(kv.Key) == "FinalSize" {
						sizes++
						edits = append(edits, s.insert(kv.Value.Pos(), "s.finalSize("), s.insert(kv.Value.End(), ")"))
					}
					return true
				})
			}
		}
		return true
	})
	if structs != 1 || reserves != 1 || releases != 1 || fins != 1 || sizes != 1 {
		return nil, fmt.Errorf(
			"found %d SendStream types, %d and %d places where CancelWrite and popStreamFrame unlock, %d where OnLost queues a frame, and %d final sizes in handleStopSendingFrame; want 1 of each",
			structs,
			reserves,
			releases,
			fins,
			sizes,
		)
	}
	return apply(src, edits)
}

// apply applies non-overlapping edits.
func apply(src []byte, edits []edit) ([]byte, error) {
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	for _, e := range edits {
		src = slices.Concat(src[:e.from], []byte(e.text), src[e.to:])
	}
	return format.Source(src)
}
