// Package moqt is a Media over QUIC Transport session,
// draft-ietf-moq-transport-18, over raw QUIC (ALPN moqt-18) and over
// WebTransport, for clients, servers and relays. The bytes are package wire's;
// here are streams, goroutines, state and errors. It knows nothing of media.
//
// A [Session] carries requests both ways. Its user answers incoming requests in
// a [Handler] and makes its own with Subscribe, Publish, Fetch and the rest. The
// two ends of a subscription are a [Subscription], which receives subgroups and
// datagrams, and a [Publication], which sends them.
//
// Nothing here buffers without a bound or blocks one peer for another: a stream
// that nobody accepts, a datagram that nobody reads and an object that misses
// its deadline are reset or dropped and counted in [Stats].
package moqt

import "holocast/internal/moqt/wire"

// Namespace and those after it are the names, places and values of the wire that
// the API speaks of.
type (
	Namespace  = wire.Namespace
	TrackName  = wire.TrackName
	Location   = wire.Location
	Filter     = wire.Filter
	GroupOrder = wire.GroupOrder
	Parameters = wire.Parameters
	Properties = wire.Properties
	Object     = wire.Object
	Datagram   = wire.Datagram
)
