// Package qmux implements QMux (draft-ietf-quic-qmux-02): QUIC's streams and datagrams over one
// reliable connection, here a WebSocket. It serves networks and browsers without QUIC.
//
// Loss delays everything behind it, and data in the socket cannot be reset. A [Conn]
// therefore encodes a record only when the socket takes it, from the most urgent streams of that
// moment. Until then data may still be reset.
package qmux
