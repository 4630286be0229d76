/**
 * Media over QUIC Transport (draft-ietf-moq-transport-18 to -22) over WebTransport or a
 * WebSocket. Independent of any media format.
 */
export * from "./codes.ts";
export { connect, ConnectError, hasQUIC, keep, type ConnectFailure, type TransportChoice } from "./connect.ts";
export { Session, Subscription, DatagramTrack, PROTOCOLS } from "./session.ts";
export type { ReceivedObject, TrackSink, SessionCounters } from "./session.ts";
export type { Datagram, ObjectHeader } from "./data.ts";
export type { ObjectOpener, OpenedObject, Opener, Place } from "./opener.ts";
export type { Namespace, TrackName, Location, Properties } from "./message.ts";
