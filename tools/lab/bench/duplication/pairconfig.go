package duplication

// Configuration of the pair's programs. Other settings have their defaults.
const (
	controllerConfig = `
http: {listen: ":%d"}
auth: {token: %s}
signal: {key: %s}
state: %s
mode: %s
%s`

	edgeConfig = `
name: %s
pin: %s
socket: %s
http: ""
controller: {url: "http://%s", token: %s}
signal: {key: %s}
`

	// bothWays makes an edge duplicate the traffic from the host on its LAN interface, and eliminate
	// replicas of the traffic to that host.
	bothWays = `
role: both
sender: {attach: [{interface: %s, direction: ingress}], towards: [%s/32]}
receiver: {behind: [%s/32]}
`

	// monitor names the interface on which the packets to evaluate arrive.
	monitor = "uplink: {interfaces: [%s]%s}\n"

	// printedElimination is Algorithm 1 of the paper: a window of 100 packets of any duration.
	printedElimination = "elimination: {window: 100, threshold: 5ms, span: 0s, lastSpan: 0s, completeSpan: 0s, " +
		"slack: 0, guard: 0s, silence: 0s}\n"
)
