//go:build linux

package main

import (
	"slices"

	"holocast/internal/config"
)

// exampleHeader begins edge.example.yaml.
const exampleHeader = "Configuration of a Holocast edge, one end of an edge pair that duplicates packets over " +
	"several paths. Generated from netfunc/edge/settings.go. name, role, paths, sender.attach and sender.towards " +
	"are an example for the edge on the relay's side; the other edge mirrors it, with role receiver. All other " +
	"values are the defaults. Flags override the file: --probe-every sets probe.every."

// Settings implements config.Described.
func (*Config) Settings() config.Table { return settings }

// identity lists the settings that identify an edge, for all commands.
var identity = []string{"name", "pin", "socket"}

// settings describes the edge's configuration. A running edge cannot change its identity or role.
var settings = slices.Concat(
	config.Table{
		{Key: "name", Help: "Name of the edge for the controller, logs and pins; the default is the host name."},
		{
			Key:  "role",
			Help: "Role of the edge: sender (duplicates packets), receiver (eliminates duplicates) or both.",
			More: "An edge with role both duplicates in one direction and eliminates in the other.",
		},
		{
			Key: "peer", Reload: true,
			Help: "Name of the other edge; required if the controller has more than two edges.",
		},
		{
			Key: "paths", Reload: true,
			Help: "Paths to the other edge, 1 to 8.",
			More: "Both edges use the same indices, and each path has its own interface. peer is the other edge's " +
				`address on the path, which is probed. gateway is the next hop; "" takes it from the route to peer ` +
				"through the interface.",
		},
	},
	senderSettings,
	receiverSettings,
	config.Table{
		{
			Key: "flows", Reload: true,
			Help: "Path sets that need no controller.",
			More: "A sender duplicates packets to these destinations over these paths; a receiver expects replicas " +
				"on them. A path set signalled by the controller takes precedence. For example:\n" +
				"  - destination: 10.9.0.2\n" +
				"    paths: [1, 2]\n" +
				"    dscp: 46   # instead of receiver.dscp",
		},
	},
	controlSettings,
	config.Table{
		{Key: "probe", Reload: true, Help: "UDP packets between the edges that measure each path."},
		{Key: "probe.port", Range: config.Positive, Help: "UDP port of probes, the same at both edges."},
		{Key: "probe.every", Help: "Interval between the probes of a path, 5ms to 1s."},
		{Key: "probe.timeout", Help: "Time after which a probe counts as lost, probe.every to 1s."},
		{
			Key:  "probe.down",
			Help: "Time without answers after which a path is not used if others have answers.",
		},
	},
	eliminationSettings,
	config.Table{
		{
			Key: "onExit", Reload: true,
			Help: "Action on SIGTERM: detach or keep the kernel programs.",
			More: "detach deregisters, stops duplication, then removes the programs. keep leaves them running for " +
				"the next start to take over. After SIGKILL they always keep running.",
		},
		{
			Key: "drain", Range: config.NotNegative, Reload: true,
			Help: "Maximum time that packets are in flight.",
			More: "A receiver waits this long between the end of duplication and detaching, and before packets on a " +
				"removed path count as rogue.",
		},
		{
			Key:  "pin",
			Help: `Directory of pinned maps and links, on a bpf file system; "" means ` + pinRoot + "/NAME.",
		},
		{Key: "socket", Help: `Socket of "edge status"; "" means ` + socketRoot + "/NAME.sock."},
		{
			Key: "http", Reload: true,
			Help: `TCP address for /metrics (Prometheus), /healthz and /status; "" disables it.`,
		},
	},
	config.LogSettings(),
)

var senderSettings = config.Table{
	{Key: "sender", Reload: true, Help: "Duplication, for the roles sender and both."},
	{
		Key:  "sender.attach",
		Help: "Interfaces whose packets are duplicated.",
		More: "ingress, for the LAN interfaces of a router, clones packets before the router's firewall, which " +
			"does not see the replicas. egress, for the paths' interfaces, clones packets that this host sends or " +
			"forwards, after its firewall, but only while plain routing leads to one of the paths.",
	},
	{Key: "sender.towards", Help: "Destinations to which the controller may have packets duplicated."},
	{
		Key:  "sender.maxPolicies",
		Help: "Maximum number of destinations with a policy, at most 6144, the capacity of a report.",
		More: "It takes effect at attachment: after a change, detach first.",
	},
	{
		Key:  "sender.flowLabel",
		Help: "Number IPv6 packets, which have no ID, in the flow label.",
		More: "Required only for senders of datagrams with equal content: otherwise at most 8 equal datagrams " +
			"arrive per receiver.stale. Do not use it if a path balances packets over links by flow label.",
	},
	{Key: "sender.clsact", Help: "Attach with clsact even if the kernel supports TCX (Linux 6.6)."},
}

var receiverSettings = config.Table{
	{Key: "receiver", Reload: true, Help: "Elimination, for the roles receiver and both."},
	{
		Key:  "receiver.interfaces",
		Help: "Interfaces on which replicas arrive; the default is the paths' interfaces.",
		More: "They need native XDP. If a path is a VLAN, name the device below it.",
	},
	{Key: "receiver.behind", Help: "Destinations behind this edge."},
	{
		Key:  "receiver.dscp",
		Help: "DSCP restored in packets, 0 to 63; between the edges the field carries the path.",
	},
	{
		Key:  "receiver.stale",
		Help: "Age at which an equal packet counts as new, 10ms to 30s.",
		More: "It must exceed the paths' difference in delay.",
	},
	{
		Key:  "receiver.tableSize",
		Help: "Number of packets remembered: packet rate × receiver.stale.",
		More: "It takes effect at attachment: after a change, detach first.",
	},
}

// controlSettings describe the communication with the controller.
var controlSettings = config.Table{
	{
		Key: "uplink", Reload: true,
		Help: "Viewers' receipts, by which the controller judges the delivery of frames.",
		More: "They are selected by their length as IP packets.",
	},
	{
		Key: "uplink.interfaces",
		Help: "Interfaces on which receipts arrive: LAN interfaces at the viewers' edge, or path interfaces at the " +
			"other edge.",
		More: "One edge of a pair suffices.",
	},
	{Key: "uplink.min", Help: "Minimum length of a receipt, in bytes."},
	{Key: "uplink.max", Help: "Maximum length of a receipt, in bytes."},
	{Key: "signal", Reload: true, Help: "Signalling packets from the controller."},
	{
		Key:  "signal.address",
		Help: `IPv4 address for signalling packets; "" means the source address of connections to the controller.`,
	},
	{
		Key:  "signal.interfaces",
		Help: "Interfaces on which signalling packets arrive; the default is the one towards the controller.",
	},
	{Key: "signal.port", Range: config.Positive, Help: "UDP port of signalling packets."},
	{
		Key:  "signal.key",
		Help: "File with the key shared with the controller; it also signs probes.",
		More: `"controller key" generates one. Only its owner and group may read the file.`,
	},
	{Key: "controller", Reload: true, Help: "The controller."},
	{
		Key: "controller.url", OldFlag: "controller",
		Help: `URL of the controller, http://host:port or https://host:port; "" uses only flows.`,
	},
	{
		Key:  "controller.token",
		Help: "File with this edge's token.",
		More: "Only its owner and group may read the file.",
	},
	{Key: "controller.ca", Help: "PEM file of certificates to trust instead of the system's."},
	{Key: "controller.certificate", Help: "PEM file of this edge's client certificate (mTLS)."},
	{Key: "controller.key", Help: "PEM file of the client certificate's private key."},
}

// eliminationSettings describe the parameters of Algorithm 1.
var eliminationSettings = config.Table{
	{
		Key: "elimination", Reload: true,
		Help: "Algorithm 1, which finds dispensable paths.",
		More: "A path that earned no reward in the last window is removed; a path that earned all rewards suffices " +
			"alone.",
	},
	{
		Key: "elimination.window", Range: config.Positive,
		Help: "Minimum number of packets in the window (W).",
	},
	{
		Key: "elimination.threshold", Range: config.Positive,
		Help: "Time after the first replica within which a later one earns a reward (alpha).",
	},
	{
		Key: "elimination.span", Range: config.NotNegative,
		Help: "Minimum duration of the window for removing a path.",
		More: "It must outlast the paths' bad spells. If span, lastSpan and completeSpan are 0s, only window applies.",
	},
	{
		Key: "elimination.lastSpan", Range: config.NotNegative,
		Help: "Minimum duration of the window for removing the second-to-last path; 0s means twice span.",
	},
	{
		Key: "elimination.completeSpan", Range: config.NotNegative,
		Help: "Minimum duration of the window for one path to suffice alone, at most 20 times span.",
	},
	{
		Key: "elimination.regret", Range: config.NotNegative,
		Help: "Time after elimination ends within which added paths show that it ended too early; 0s disables this.",
		More: "The next elimination then uses completeSpan instead of lastSpan.",
	},
	{
		Key: "elimination.slack", Range: config.NotNegative,
		Help: `Tolerance for "no reward" and "all rewards", as a fraction of the window; below 0.125.`,
	},
	{
		Key:  "elimination.timeout",
		Help: "Time after which a packet is judged despite missing replicas, at least threshold.",
	},
	{
		Key:  "elimination.memory",
		Help: "How long a packet is remembered.",
		More: "It must exceed the paths' difference in delay.",
	},
	{Key: "elimination.capacity", Range: config.Positive, Help: "Maximum number of packets remembered."},
	{
		Key: "elimination.guard", Range: config.NotNegative,
		Help: "Time after a path set grows during which packets are not judged.",
	},
	{
		Key: "elimination.silence", Range: config.NotNegative,
		Help: "Time without packets after which the windows restart; 0s disables this.",
	},
	{
		Key: "elimination.latentPeriod", Range: config.NotNegative,
		Help: "Interval of the test for latent errors: losses on a path that redundancy hides; 0s disables this.",
	},
	{
		Key: "elimination.latentLoss", Range: config.NotNegative,
		Help: "Fraction of a path's replicas, 0 to 1, whose loss in one period is a latent error.",
	},
}
