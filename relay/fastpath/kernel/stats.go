package kernel

// Counts are what became of packets since the programs were loaded.
type Counts struct {
	Opened      uint64 // publishers' packets that were authentic
	Forwarded   uint64 // copies sent to viewers
	Bytes       uint64 // of these, UDP payload
	Precomputed uint64 // of the copies, those whose key stream was made before
	Failed      uint64 // copies that were registered as sent but could not be
	Migrated    uint64 // viewers suspended because they came from another address
	// Slow are publishers' packets that only user space handled, Left copies that only
	// user space sends, by reason.
	UserSpace, Fallback map[string]uint64
}
