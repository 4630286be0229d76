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

	// trigger is set for receipts, of which there is one for every frame shown: a frame
	// that comes 12 ms after its time, twice running. A packet that has to be sent again
	// delays one frame, and hurries the one behind.
	trigger = "trigger: {interval: 45ms, count: 2}"

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
