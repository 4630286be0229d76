package duplication

// Configurations of the pair's programs. What is not in them is as their example files say.
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
	// bothWays is for the interface of the LAN, what is duplicated and what lies behind.
	bothWays = `
role: both
sender: {attach: [{interface: %s, direction: ingress}], towards: [%s/32]}
receiver: {behind: [%s/32]}
` + eliminate + "\n"

	// monitor is for the interface that the watched packets come in by.
	monitor = "uplink: {interfaces: [%s], min: %d, max: %d}\n"

	// The window is a time: see package elimination.
	eliminate = "elimination: {window: 100, threshold: 5ms, span: 2s, completeSpan: 10s, guard: 100ms}"
)
