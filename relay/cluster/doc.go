// Package cluster connects relays that serve the same sessions. Each relay announces the namespaces
// published at it over NATS, and each relay's router offers the namespaces of the others: a viewer's
// request then goes over MOQT to the relay that has the publisher, once per track and relay.
//
// Routes are soft state (Table): announced on change, confirmed by a heartbeat with a digest, sent in
// full on request, and dropped when a relay falls silent. A relay serves other relays only from its own
// publishers, so a path has one hop and cannot loop.
package cluster
