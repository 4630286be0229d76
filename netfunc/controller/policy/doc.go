// Package policy selects the paths of each flow, after section III of Qian et al., "Enabling
// eBPF-based packet duplication for robust volumetric video streaming": the trigger starts
// duplication over all paths, receivers' eliminations remove paths, a single remaining path ends
// it, and the trigger is re-armed.
//
// It is a state machine without I/O. Every event takes the time as a parameter; the caller then
// takes the effects from the engine:
//
//	         trigger             elimination            one path left
//	armed ───────────► duplicating ─────────► trimmed ─────────► single
//	  ▲  ▲                  ▲  │                │ │                │
//	  │  └── the flow ended ─┼──┴────────────────┘ │                │
//	  │                      └── trigger ──────────┘                │
//	  └────────────────────── after the re-arm time ───────────────┘
//
// If the trigger fires before re-arming although duplication had helped, a single path was not
// enough, and the flow returns to trimmed.
//
// Two invariants hold: an elimination or a lost path never leaves a flow with an empty set, and
// within a generation of a path set paths are only removed, so an elimination can be matched to the
// set it judged.
package policy
