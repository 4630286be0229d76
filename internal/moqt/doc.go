// Package moqt implements Media over QUIC Transport sessions, draft-ietf-moq-transport-18 to -22
// (see wire.Version), over raw QUIC and WebTransport, for clients, servers and relays. Package wire
// encodes messages; this package holds streams, goroutines, state and errors. It does not interpret
// media.
//
// A [Session] carries requests in both directions. Its user answers incoming requests in a
// [Handler] and sends its own with Subscribe, Publish, Fetch and others. The two ends of a
// subscription are a [Subscription], which receives subgroups and datagrams, and a [Publication],
// which sends them.
//
// Every buffer is bounded, and no peer blocks another: streams that are not accepted, datagrams
// that are not read and objects that miss their deadline are reset or dropped, and counted in
// [Stats].
package moqt

import "holocast/internal/moqt/wire"

type (
	// Namespace is a track namespace.
	Namespace = wire.Namespace
	// TrackName is a full track name.
	TrackName = wire.TrackName
	// Location is the position of an object in its track.
	Location = wire.Location
	// Filter restricts the objects of a subscription.
	Filter = wire.Filter
	// GroupOrder is the delivery order of groups.
	GroupOrder = wire.GroupOrder
	// Parameters are the parameters of a request or response.
	Parameters = wire.Parameters
	// Properties are the properties of a track or object.
	Properties = wire.Properties
	// Object is the header of an object in a subgroup.
	Object = wire.Object
	// Datagram is an object sent as a datagram.
	Datagram = wire.Datagram
)
