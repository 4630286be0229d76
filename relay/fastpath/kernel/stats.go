package kernel

// Counts holds the packet counters since the programs were loaded.
type Counts struct {
	Opened      uint64 // authentic publisher packets
	Forwarded   uint64 // copies sent to viewers
	Bytes       uint64 // UDP payload bytes of these copies
	Precomputed uint64 // copies sent with a precomputed key stream
	Failed      uint64 // copies that were registered as sent but could not be sent
	Migrated    uint64 // viewers suspended after an address change
	// UserSpace counts the publisher packets that only user space handled, by reason. Fallback
	// counts the copies for single viewers that were left to user space, by reason.
	UserSpace, Fallback map[string]uint64
}
