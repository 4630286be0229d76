//go:build linux

package main

import (
	"slices"

	"holocast/internal/config"
)

// exampleHeader begins controller.example.yaml.
const exampleHeader = "Configuration of the Holocast controller, generated from netfunc/controller/settings.go. " +
	"Every setting but signal.key is optional; the values here are the defaults. " +
	"Flags override the file: --http-listen sets http.listen."

// Settings implements config.Described.
func (*Config) Settings() config.Table { return settings }

// settings describes the controller's configuration.
var settings = slices.Concat(
	accessSettings,
	config.Table{
		{Key: "signal", Help: "Signalling packets to sender edges."},
		{
			Key: "signal.key", Reload: true,
			Help: "File with the signalling key, which the edges share.",
			More: "Each packet is signed for one edge only.\n" +
				"  (umask 077; controller key > signal.key)",
		},
		{Key: "signal.from", Help: `IPv4 source address of signalling packets; "" means any.`},
		{
			Key: "signal.resend", Reload: true,
			Help: "Initial interval between copies of a signalling packet, at least 1ms.",
			More: "The controller repeats a packet, with new nonces, until the sender edge reports it in force; the " +
				"interval grows to signal.slow.",
		},
		{Key: "signal.slow", Reload: true, Help: "Final interval between copies of a signalling packet."},
		{
			Key:  "state",
			Help: `File that preserves edges, flows and the last decisions across restarts; "" keeps nothing.`,
		},
	},
	policySettings,
	config.LogSettings(),
)

// accessSettings describe the HTTP server and its clients.
var accessSettings = config.Table{
	{Key: "http", Help: "The HTTP server."},
	{
		Key: "http.listen", OldFlag: "listen",
		Help: "TCP address for edges, operators, /metrics (Prometheus), /healthz and the status page.",
		More: "An address other than loopback requires auth.token or clientCA.",
	},
	{
		Key: "http.operators", OldFlag: "operators",
		Help: `Separate TCP address for operators, /metrics and the status page; "" serves them at listen.`,
		More: "With it, listen serves only edges and /healthz.",
	},
	{
		Key: "http.certificate", OldFlag: "certificate", Reload: true,
		Help: "PEM file of the server's certificate, which enables TLS.",
		More: "A changed file is loaded automatically. Without TLS, tokens cross the network in the clear.",
	},
	{
		Key: "http.key", OldFlag: "key", Reload: true,
		Help: "PEM file of the certificate's private key.",
	},
	{
		Key: "http.clientCA", OldFlag: "client-ca",
		Help: "PEM file with the certificate authorities of clients (mTLS).",
		More: "A client certificate replaces a token: its common name identifies an edge or an operator.",
	},
	{
		Key: "http.rate", Range: config.NotNegative, Reload: true,
		Help: "Requests per second from an address; 0 means no limit.",
		More: "Operators, edges and unauthenticated callers have separate quotas.",
	},
	{Key: "http.burst", Reload: true, Help: "Requests that an address may send at once."},
	{Key: "http.maxBody", Help: "Maximum size of a request, in bytes."},
	{
		Key:  "http.maxConnections",
		Help: "Maximum connections in each of three groups: operators, edges, and clients not yet authenticated.",
		More: "At this limit and the next two, a new connection replaces the one idle longest, or is refused if " +
			"none is idle.",
	},
	{
		Key:  "http.perAddress",
		Help: "Maximum connections of an address (an IPv6 /64) in each group of http.maxConnections.",
	},
	{
		Key:  "http.perEdge",
		Help: "Maximum connections of an edge with its own token or certificate.",
		More: "An edge opens up to four.",
	},
	{Key: "auth", Reload: true, Help: "Tokens and client certificates."},
	{
		Key: "auth.token", OldFlag: "token",
		Help: "File with the operators' token, which allows all calls.",
		More: "A token is one word of at least 16 characters.\n" +
			"  (umask 077; openssl rand -hex 24 > operator.token)",
	},
	{
		Key: "auth.edges", OldFlag: "edge",
		Help: "Files with edges' tokens by edge name: {london: london.token}, or london=london.token in the flag.",
		More: "A token allows that edge to report, but not to read or set flows.",
	},
	{
		Key: "auth.edgeToken", OldFlag: "edge-token",
		Help: "File with one token for all edges that auth.edges does not list.",
		More: "Its holder may report as any of them: use it only for edges that trust each other.",
	},
	{
		Key:  "auth.operators",
		Help: "Common names of client certificates that allow all calls, like the operators' token.",
		More: "Any other certificate belongs to the edge of its common name.",
	},
	{
		Key: "grants", Reload: true,
		Help: "Permitted claims of edges by name.",
		More: "prefixes must contain the edge's towards and behind; signal lists the permitted signalling addresses " +
			"of a sender. With any grants, edges without one are refused; without grants, edges may claim " +
			"anything. For example:\n" +
			"  london: {prefixes: [10.9.0.0/24], signal: [10.8.0.1]}",
	},
}

// policySettings describe how paths are chosen.
var policySettings = config.Table{
	{
		Key: "mode", Reload: true,
		Help: "Mode of flows without an operator's setting: auto, duplicate, redirect or off.",
		More: "\n" +
			"  auto       duplicate over all paths when the trigger fires, remove paths that the receiver\n" +
			"             eliminates, and stop at a single path\n" +
			"  redirect   move the flow to the path with the least RTT when the trigger fires\n" +
			"  duplicate  always duplicate over all paths\n" +
			"  off        use plain routing",
	},
	{Key: "trigger", Reload: true, Help: "Conditions that start duplication."},
	{
		Key:  "trigger.rule",
		Help: "Rule for the uplink packets of a viewer, one per displayed frame: lateness or paper.",
		More: "\n" +
			"  lateness  packets are late relative to the frame interval while the flow's path loses probes or\n" +
			"            is slower than its own minimum; a slow viewer or a long path does not fire it\n" +
			"  paper     trigger.count gaps above trigger.interval in a row, as in Qian et al.; also used\n" +
			"            for flows over paths without a peer to probe",
	},
	{
		Key:  "trigger.sensitivity",
		Help: "Sensitivity of lateness: above 0, at most 10. Packets may be late by the frame interval divided by it.",
		More: "Half as much added round-trip time counts as a slower path.",
	},
	{
		Key:  "trigger.interval",
		Help: "Rule paper: longest normal gap between two uplink packets.",
	},
	{Key: "trigger.count", Help: "Rule paper: consecutive gaps above trigger.interval that fire the trigger."},
	{
		Key:  "trigger.silence",
		Help: "Silence of a live flow that fires the trigger on its own; 0s disables this.",
		More: "With the rule lateness, the path must be silent too.",
	},
	{
		Key:  "trigger.merge",
		Help: "Packets that follow another within this time count as one.",
		More: "Delayed frames are acknowledged in bursts.",
	},
	{Key: "trigger.live", Help: "Number of packets that make a flow live."},
	{Key: "redirect", Reload: true, Help: "Conditions that move a flow in mode redirect."},
	{
		Key:  "redirect.margin",
		Help: "Minimum improvement over the current path's RTT, as a fraction of it.",
	},
	{Key: "redirect.gain", Help: "Minimum improvement over the current path's RTT, as a duration."},
	{Key: "redirect.hold", Help: "Minimum time between two moves, unless the path is lost."},
	{
		Key:  "redirect.follow",
		Help: "Move whenever a better path exists, not only when the trigger fires.",
	},
	{
		Key:  "reportInterval",
		Help: "Report interval of edges, at least 10ms; an edge that misses three reports is lost.",
		More: "A flow whose receiver is lost continues on a single path.",
	},
	{
		Key: "rearm", Reload: true,
		Help: "Time from the start of duplication, or from its end at a single path, until the trigger may fire " +
			"again.",
		More: "If a single path fails earlier, the previous paths return, provided they had helped. The time " +
			"doubles, up to 64 times the setting, each time duplication over all paths did not help, since the " +
			"cause then lies elsewhere, and each time all paths added to a trimmed set were removed again. Paths " +
			"that failed to deliver (bottlenecks or broken) stay out for 16 times the setting while two others are " +
			"up.",
	},
	{Key: "end", Reload: true, Help: "Time without uplink packets after which a flow returns to plain routing."},
	{Key: "forget", Reload: true, Help: "Time without uplink packets after which a flow is forgotten."},
	{
		Key:  "maxFlows",
		Help: "Maximum number of flows, at most 1024, the capacity of a receiver's kernel program.",
	},
	{Key: "maxEdges", Help: "Maximum number of edges."},
	{Key: "keepDecisions", Help: "Number of decisions kept in memory; the state file keeps the last 512."},
}
