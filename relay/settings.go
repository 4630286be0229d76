package main

import (
	"slices"

	"holocast/internal/config"
	"holocast/internal/trace"
)

// exampleHeader begins relay.example.yaml.
const exampleHeader = "Configuration of the Holocast relay, generated from relay/settings.go. " +
	"Every setting is optional; the values here are the defaults. " +
	"Flags override the file: --cache-max-age sets cache.maxAge."

// Settings implements config.Described.
func (*Config) Settings() config.Table { return settings }

// settings describes the relay's configuration.
var settings = slices.Concat(
	config.Table{
		{
			Key:  "listen",
			Help: "UDP address for raw QUIC (moqt://) and WebTransport (https://).",
			More: `The default is loopback. To accept remote peers, set listen and http to ":4443" and configure ` +
				"auth.keys, which the relay then requires.",
		},
		{Key: "insecure", Help: "Disable authentication: any peer may publish and subscribe."},
		{
			Key: "http", Help: `TCP address for the web viewer, /healthz, /certificate.sha256 and sessions over WebSockets; "" disables it.`,
			More: "It takes HTTP and HTTPS. With authentication, WebSockets from other machines need TLS.",
		},
		{
			Key:  "admin",
			Help: "TCP address for /metrics (Prometheus), /live (a page of sessions and tracks), /api/v1 and /healthz.",
			More: `"" serves them at http if that is a loopback address, and nowhere otherwise. It takes HTTP and HTTPS.`,
		},
		{
			Key:  "adminToken",
			Help: "File of tokens for /api/v1 and the live page, one per line.",
			More: `A changed file is loaded automatically. Tokens from other machines need HTTPS. "" allows only ` +
				"this machine to read, and only commands such as relay kick to act.",
		},
		{
			Key:  "web",
			Help: `Directory with the built web viewer (client-web/dist), served over HTTP; "" serves none.`,
			More: "Browsers open WebTransport only from pages of this machine or over HTTPS.",
		},
		{
			Key: "origins", OldFlag: "origin", Reload: true,
			Help: `Further web origins that may connect, such as https://viewer.example; "*" allows all.`,
			More: "Pages of the relay's own host and of the browser's machine may always connect.",
		},
		{
			Key: "qlog.dir", OldFlag: "qlog",
			Help: `Directory for qlog files, one per QUIC connection, for tools such as qvis; "" writes none.`,
		},
		{Key: "qlog.maxFiles", Range: config.Positive, Help: "Maximum number of qlog files; the oldest are deleted."},
		{Key: "qlog.maxBytes", Range: config.Positive, Help: "Maximum size of a qlog file; later events are dropped."},
		{
			Key:  "congestion",
			Help: `Congestion controller: bbr, cubic, ledbat, newreno, vegas or yeah; "" is bbr.`,
			More: "A build with the upstream quic-go has only newreno. relay --version lists the controllers of " +
				"a build.",
		},
		{
			Key:  "multipath",
			Help: "Accept sessions over several networks of a client.",
			More: "If false, such a client gets an ordinary session over one of them.",
		},
		{
			Key:  "earlyData",
			Help: "Accept requests in the first packet of a resumed QUIC session (0-RTT).",
			More: "Viewers that reconnect see the first frame two round trips sooner. Attackers may replay such " +
				"packets, within the limits that docs/security.md describes.",
		},
		{
			Key:  "fastpath",
			Help: "Forward datagrams in the kernel (eBPF): off, auto, single or chacha20.",
			More: "\n" +
				"  off\n" +
				"  auto      single objects, such as poses, of clients that prefer ChaCha20-Poly1305 in TLS, if\n" +
				"            available: Linux 6.6, and root or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON\n" +
				"  single    single objects of all clients that support ChaCha20-Poly1305, which TLS then prefers;\n" +
				"            fail to start if unavailable\n" +
				"  chacha20  as single, with frames of several datagrams\n" +
				"The log and /metrics report why it is inactive.",
		},
		{Key: "tls", Reload: true, Help: "The server certificate."},
		{
			Key: "tls.certificate", OldFlag: "certificate",
			Help: "PEM file of a certificate that clients trust.",
			More: `A changed file is loaded automatically. "" generates a development certificate, valid for 13 ` +
				"days and renewed in time; /certificate.sha256 serves its hash.",
		},
		{Key: "tls.key", OldFlag: "key", Help: "PEM file of the certificate's private key."},
		{Key: "tls.hosts", OldFlag: "host", Help: "Names and addresses in the development certificate."},
		{
			Key:  "cache",
			Help: "Cache for late joiners and slow viewers.",
			More: "A viewer that falls behind the cache skips ahead.",
		},
		{
			Key: "cache.maxBytes", OldFlag: "cache-bytes", Range: config.Positive, Reload: true,
			Help: "Maximum memory per track, in bytes.",
		},
		{
			Key: "cache.totalBytes", Reload: true,
			Help: "Maximum memory of all tracks, in bytes.",
			More: "When exceeded, the largest track evicts its oldest groups. Capped at 40 % of the memory limit of " +
				"the relay's container or service. The garbage collector keeps the process below 1.5 times this " +
				"value plus 512 MiB, or below that limit. GOMEMLIMIT overrides that.",
		},
		{
			Key: "cache.maxAge", OldFlag: "cache-age", Range: config.Positive, Reload: true,
			Help: "Maximum age of cached groups; the newest group is always kept.",
		},
		{
			Key:  "cache.disk",
			Help: "Cache on disk of complete groups that leave the memory, for fetches of older groups.",
			More: "It survives a restart.",
		},
		{Key: "cache.disk.dir", Help: `Directory of the cache; "" means none.`},
		{Key: "cache.disk.size", Range: config.Positive, Reload: true, Help: "Maximum size of all groups, in bytes."},
		{Key: "cache.disk.age", Range: config.Positive, Reload: true, Help: "Maximum age of groups."},
		{Key: "viewer", Reload: true, Help: "Subscribers."},
		{
			Key: "viewer.maxOpenSubgroups", Range: config.Positive,
			Help: "Maximum subgroups in flight per session, across tracks.",
			More: "Beyond it the least important one is reset.",
		},
		{
			Key: "viewer.maxRendezvous", Range: config.Positive,
			Help: "Maximum time a subscription waits for a publisher; subscribers may ask for less.",
		},
		{Key: "publisher", Help: "Publishers."},
		{
			Key: "publisher.grace", OldFlag: "grace", Range: config.Positive, Reload: true,
			Help: "How long subscriptions survive their publisher.",
		},
		{
			Key: "publisher.linger", Range: config.Positive, Reload: true,
			Help: "How long a track without viewers stays subscribed at its publisher.",
		},
		{
			Key: "publisher.backups", OldFlag: "backups",
			Help: "Accept several publishers per namespace.",
			More: "Viewers receive each track once. If false, further publishers are refused until the first one " +
				"leaves.",
		},
		{Key: "record", Help: "Recordings of sessions on this machine, which viewers can watch."},
		{
			Key: "record.sessions", Flag: "record", Reload: true,
			Help: "Names of the sessions to record; * matches any text without a slash, as in studio/*.",
			More: "A recording of studio is the session recordings/studio/TIME. Whoever may watch the session may " +
				"watch it.",
		},
		{
			Key:  "record.dir",
			Help: `Directory of the recordings (MCAP files, as of holocast record); "" records and offers none.`,
		},
		{
			Key: "record.maxDuration", Range: config.NotNegative, Reload: true,
			Help: "Longest recording; a longer session continues in another. 0 means no limit.",
		},
		{
			Key: "record.maxAge", Range: config.NotNegative, Reload: true,
			Help: "Age at which recordings are deleted; 0 keeps them.",
		},
		{
			Key: "record.maxBytes", Range: config.NotNegative, Reload: true,
			Help: "Size of all recordings; above it the oldest are deleted. 0 means no limit.",
		},
		{
			Key: "record.minFree", Range: config.NotNegative, Reload: true,
			Help: "Free space, in bytes, below which recording pauses.",
		},
		{
			Key:  "cluster",
			Help: "Relays that serve the same sessions: publishers and viewers may be at any of them.",
		},
		{
			Key: "cluster.name", Flag: "cluster",
			Help: `Name of the cluster; "" means none.`,
			More: "All its relays have the same name and secret.",
		},
		{Key: "cluster.region", Help: "Location of the relay; each session enters a region once, through one of its relays."},
		{
			Key:  "cluster.secret",
			Help: "File with the secret that the relays of the cluster share.",
			More: "relay key FILE --algorithm HS256 generates one. A relay with the secret can receive every session.",
		},
		{
			Key:  "cluster.advertise",
			Help: "URL at which other relays reach this one, such as moqt://relay1.example:4443.",
			More: `"" derives it from listen and the machine's addresses. It must not lead to a load balancer.`,
		},
		{
			Key:  "cluster.public",
			Help: "URL at which clients of other relays reach this one, such as moqt://relay1.example:4443.",
			More: `Clients use it if their relay fails or is drained. "" means advertise.`,
		},
		{
			Key:  "cluster.listen",
			Help: "TCP address for other relays' routes (NATS over TLS with the secret's certificates).",
		},
		{
			Key:  "cluster.join",
			Help: "Addresses (HOST:PORT) of other relays' cluster.listen; one that is reachable suffices.",
		},
		{
			Key:  "cluster.nats",
			Help: "URL of an external NATS server, instead of listen and join, such as nats://user:password@nats.example:4222.",
		},
		{
			Key: "auth", Reload: true,
			Help: "Who may publish and subscribe: holders of a token (JWT) or client certificate, or anyone.",
		},
		{
			Key: "auth.keys", OldFlag: "keys",
			Help: "Keys that sign tokens: files (JWK, PEM or shared secret) or https URLs of key sets.",
			More: "Tokens are JWTs signed with EdDSA, ES256, RS256 or HS256; a shared secret has at least 32 " +
				`bytes. "relay key FILE" generates a key, "relay token" a token. Changed files are loaded ` +
				"automatically, URLs at the refresh interval; SIGHUP reloads both. Removing a key ends the sessions " +
				"whose tokens it signed.",
		},
		{Key: "auth.refresh", Range: config.Positive, Help: "Interval between reads of key URLs."},
		{
			Key:  "auth.revoked",
			Help: "File of revoked tokens and client certificates: one ID, subject or name per line.",
			More: "Sessions that use them end.",
		},
		{
			Key:  "auth.sessionsPerToken",
			Help: "Maximum sessions of a token, at all relays of a cluster together; 0 means no limit.",
			More: "A session beyond it is refused. A client that moves to another relay has two for a moment. Set it " +
				"alike at all relays of a cluster.",
		},
		{Key: "auth.issuer", Help: `Required iss claim; "" accepts any.`},
		{Key: "auth.audience", Help: `Required aud claim; "" accepts any.`},
		{Key: "auth.anonymous", Help: "Namespace prefixes, such as holocast/lobby, open to peers without a token."},
		{Key: "auth.anonymous.publish", Flag: "-", Help: "Prefixes they may publish."},
		{Key: "auth.anonymous.subscribe", Flag: "-", Help: "Prefixes they may subscribe to."},
		{Key: "auth.clientCA", Help: "PEM file with the CA of client certificates."},
		{
			Key:  "auth.clients",
			Help: "What holders of client certificates may do. For example:",
			More: "\n" +
				"  - name: camera.example   # common name, DNS name or URI in the certificate\n" +
				"    publish: [holocast/studio]\n" +
				"    subscribe: []",
		},
		{
			Key: "limits", OldFlag: "limit", Reload: true,
			Help: "Limits per session, per address (IPv4 address or IPv6 /64) and in total, such as " +
				"subscriptions.session=100.",
			More: "0 means no limit. Requests beyond a limit are refused with EXCESSIVE_LOAD and a retry " +
				"interval; data beyond a rate waits at its sender. The last quarter of an address's or the " +
				"relay's limit is shared out equally. --limits sets one limit and may be repeated.",
		},
		{Key: "limits.connections", Help: "QUIC connections, counted from the first packet, and WebSockets."},
		{Key: "limits.streams", Help: "Streams opened by peers."},
		{Key: "limits.window", Help: "Unread bytes that peers may send beyond the first 2 MiB."},
		{Key: "limits.waiting", Help: "Unanswered requests."},
		{Key: "limits.subscriptions", Help: "Subscriptions to tracks and namespaces."},
		{Key: "limits.fetches", Help: "Fetches being served."},
		{Key: "limits.namespaces", Help: "Published namespaces."},
		{Key: "limits.tracks", Help: "Tracks received from publishers."},
		{Key: "limits.properties", Help: "Bytes of these tracks' properties."},
		{
			Key:  "limits.cached",
			Help: "Cached bytes; beyond the limit, the largest track evicts its oldest groups.",
			More: "cache.totalBytes limits the total.",
		},
		{Key: "limits.handshakes", Help: "TLS handshakes per second, over QUIC and TCP; a WebSocket counts as another."},
		{Key: "limits.requests", Help: "Requests and request updates per second."},
		{Key: "limits.groups", Help: "Groups and subgroups (streams of objects) per second."},
		{Key: "limits.objects", Help: "Objects per second from publishers."},
		{Key: "limits.bytes", Help: "Bytes of objects per second from publishers."},
		{
			Key:  "limits.initials",
			Help: "Initial packets per second.",
			More: "If they exceed a limit for longer than a second, the kernel drops some of them.",
		},
		{
			Key: "maxSessions", OldFlag: "sessions", Range: config.Positive, Reload: true,
			Help: "Maximum concurrent sessions.",
		},
		{
			Key: "maxConnects", Range: config.Positive,
			Help: "Connection attempts per second beyond which clients must validate their address.",
			More: "Validation (Retry) costs a round trip.",
		},
		{
			Key: "drain", Range: config.NotNegative, Reload: true,
			Help: "How long sessions may take to leave after SIGTERM; half a second at most after SIGINT.",
		},
		{
			Key: "drainTimeout", Range: config.NotNegative,
			Help: "How long sessions may stay with a replaced or drained process (relay upgrade, relay drain).",
			More: "They are then asked to leave as after SIGTERM.",
		},
	},
	trace.Settings(),
	config.LogSettings(),
)
