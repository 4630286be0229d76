package sound

// The emulated path from the relay to the player.
const (
	pathConditions = "rate: 20Mbit, queue: 100ms, loss: 2%, variation: {delay: 20ms-40ms, every: 20ms}"
	pathAbout      = "20 Mbit/s, 20 ms one way plus 0 to 20 ms that change every 20 ms, 2 % loss"
)
