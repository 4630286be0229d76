package duplication

// Configuration of the pair's programs. Other settings keep the example files' values.
const (
	controllerConfig = `
http: {listen: ":%d"}
auth: {token: %s}
signal: {key: %s}
state: %s
mode: %s
trigger: {interval: %v, count: %d}
rearm: 5s
`

	edgeConfig = `
name: %s
pin: %s
socket: %s
http: ""
controller: {url: "http://%s", token: %s}
signal: {key: %s}
`
	//
	// bothWays is for an edge whose LAN interface carries both the duplicated traffic and its
	// destination.
	bothWays = `
role: both
sender: {attach: [{interface: %s, direction: ingress}], towards: [%s/32]}
receiver: {behind: [%s/32]}
` + eliminate + "\n"

	//
	// monitor is for the interface that receives the observed packets.
	monitor = "uplink: {interfaces: [%s], min: %d, max: %d}\n"

	//
	// The window is a duration: see package elimination.
	eliminate = "elimination: {window: 100, threshold: 5ms, span: 2s, completeSpan: 10s, guard: 100ms}"
)
