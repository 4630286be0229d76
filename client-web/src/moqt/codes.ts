/** Session termination codes, draft-ietf-moq-transport-18 §15.10.1. */
export const SessionCode = {
  NO_ERROR: 0x0,
  INTERNAL_ERROR: 0x1,
  UNAUTHORIZED: 0x2,
  PROTOCOL_VIOLATION: 0x3,
  INVALID_REQUEST_ID: 0x4,
  DUPLICATE_TRACK_ALIAS: 0x5,
  KEY_VALUE_FORMATTING_ERROR: 0x6,
  INVALID_PATH: 0x8,
  MALFORMED_PATH: 0x9,
  GOAWAY_TIMEOUT: 0x10,
  CONTROL_MESSAGE_TIMEOUT: 0x11,
  DATA_STREAM_TIMEOUT: 0x12,
  AUTH_TOKEN_CACHE_OVERFLOW: 0x13,
  DUPLICATE_AUTH_TOKEN_ALIAS: 0x14,
  VERSION_NEGOTIATION_FAILED: 0x15,
  MALFORMED_AUTH_TOKEN: 0x16,
  UNKNOWN_AUTH_TOKEN_ALIAS: 0x17,
  EXPIRED_AUTH_TOKEN: 0x18,
  INVALID_AUTHORITY: 0x19,
  MALFORMED_AUTHORITY: 0x1a,
} as const;

/** REQUEST_ERROR codes, §15.10.2. */
export const RequestCode = {
  INTERNAL_ERROR: 0x0,
  UNAUTHORIZED: 0x1,
  TIMEOUT: 0x2,
  NOT_SUPPORTED: 0x3,
  MALFORMED_AUTH_TOKEN: 0x4,
  EXPIRED_AUTH_TOKEN: 0x5,
  GOING_AWAY: 0x6,
  EXCESSIVE_LOAD: 0x9,
  DOES_NOT_EXIST: 0x10,
  INVALID_RANGE: 0x11,
  MALFORMED_TRACK: 0x12,
  DUPLICATE_SUBSCRIPTION: 0x19,
  UNINTERESTED: 0x20,
  PREFIX_OVERLAP: 0x30,
  NAMESPACE_TOO_LARGE: 0x31,
  INVALID_JOINING_REQUEST_ID: 0x32,
  UNSUPPORTED_EXTENSION: 0x33,
  REDIRECT: 0x34,
} as const;

/** PUBLISH_DONE codes, §15.10.3. */
export const DoneCode = {
  INTERNAL_ERROR: 0x0,
  UNAUTHORIZED: 0x1,
  TRACK_ENDED: 0x2,
  SUBSCRIPTION_ENDED: 0x3,
  GOING_AWAY: 0x4,
  TOO_FAR_BEHIND: 0x5,
  EXPIRED: 0x6,
  UPDATE_FAILED: 0x8,
  EXCESSIVE_LOAD: 0x9,
  MALFORMED_TRACK: 0x12,
} as const;

/** Stream reset codes, §15.10.4. */
export const StreamCode = {
  INTERNAL_ERROR: 0x0,
  CANCELLED: 0x1,
  DELIVERY_TIMEOUT: 0x2,
  SESSION_CLOSED: 0x3,
  GOING_AWAY: 0x4,
  TOO_FAR_BEHIND: 0x5,
  UNKNOWN_OBJECT_STATUS: 0x6,
  EXPIRED_AUTH_TOKEN: 0x7,
  EXCESSIVE_LOAD: 0x9,
  MALFORMED_TRACK: 0x12,
} as const;

/** Looks up a code's name. Unknown codes are valid, since later drafts may add some (§14). */
export function codeName(registry: Readonly<Record<string, number>>, code: number): string {
  for (const name in registry) if (registry[name] === code) return name;
  return `code 0x${code.toString(16)}`;
}

/** The session ended because either side closed it or its connection failed. */
export class SessionError extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
    readonly remote: boolean,
  ) {
    super(
      `session closed${remote ? " by the relay" : ""}: ${codeName(SessionCode, code)}${reason ? `: ${reason}` : ""}`,
    );
    this.name = "SessionError";
  }
}

/** The peer violated the wire format; the session closes with `code` (§3.5). */
export class WireError extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(`${codeName(SessionCode, code)}: ${message}`);
    this.name = "WireError";
  }
}

export function violation(message: string): WireError {
  return new WireError(SessionCode.PROTOCOL_VIOLATION, message);
}

/**
 * The publisher broke the rules for a track (§2.4.2). The subscription ends; the session continues.
 */
export class MalformedTrackError extends Error {
  constructor(message: string) {
    super(`malformed track: ${message}`);
    this.name = "MalformedTrackError";
  }
}

/** The peer refused a request with REQUEST_ERROR (§10.6). */
export class RequestError extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
    /** Milliseconds to wait before retrying; undefined = do not retry. */
    readonly retryAfter: number | undefined,
  ) {
    super(`${codeName(RequestCode, code)}${reason ? `: ${reason}` : ""}`);
    this.name = "RequestError";
  }
}

/** The publisher ended a subscription with PUBLISH_DONE (§10.11). */
export class DoneError extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
  ) {
    super(`${codeName(DoneCode, code)}${reason ? `: ${reason}` : ""}`);
    this.name = "DoneError";
  }
}
