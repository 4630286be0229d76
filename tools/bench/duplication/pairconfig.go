package duplication

// Configurations of the pair's programs. What is not in them is as their example files say.
const (
	controllerConfig = `
http: {listen: ":%d"}
auth: {token: %s}
signal: {key: %s}
state: %s
mode: %s
` + trigger + "\n"

	// trigger is set for receipts, of which there is one for every frame shown: 33 ms, and
	// 40 ms more where a packet had to be sent again over path 1, are in order.
	trigger = "trigger: {interval: 80ms, count: 1}"

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

	// monitor is for the interface that receipts come in by. They have 259 to 284 bytes,
	// and nothing else from a viewer has more than 100.
	monitor = "uplink: {interfaces: [%s], min: 200, max: 300}\n"

	eliminate = "elimination: {window: 100, threshold: 5ms, span: 2s, completeSpan: 10s}"
)
