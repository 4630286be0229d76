// Package moqt is a Media over QUIC Transport session,
// draft-ietf-moq-transport-18 or -19 (see wire.Version), over raw QUIC and over
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

type (
	// Namespace is a track namespace.
	Namespace = wire.Namespace
	// TrackName is a full track name.
	TrackName = wire.TrackName
	// Location is an object's place in its track.
	Location = wire.Location
	// Filter restricts the objects of a subscription.
	Filter = wire.Filter
	// GroupOrder is the order in which groups are sent.
	GroupOrder = wire.GroupOrder
	// Parameters are those of a request or response.
	Parameters = wire.Parameters
	// Properties are a track's or an object's.
	Properties = wire.Properties
	// Object is the header of an object in a subgroup.
	Object = wire.Object
	// Datagram is an object sent as a datagram.
	Datagram = wire.Datagram
)
