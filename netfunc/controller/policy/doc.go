// Package policy selects the paths of each flow, following section III of Qian et al., "Enabling
// eBPF-based packet duplication for robust volumetric video streaming". The trigger starts
// duplication over all paths, and receivers' eliminations remove paths. When a single path remains,
// duplication ends and the trigger is re-armed.
//
// It is a state machine without I/O. Every event has the time as a parameter, and the caller takes
// the effects from the engine afterwards. A flow in mode auto passes through these states:
//
//	         trigger             elimination            one path left
//	armed ───────────► duplicating ─────────► trimmed ─────────► single
//	  ▲  ▲                  ▲  │                │ │                │
//	  │  └── the flow ended ─┼──┴────────────────┘ │                │
//	  │                      └── trigger ──────────┘                │
//	  └────────────────────── after the re-arm time ───────────────┘
//
// If duplication had helped and the trigger fires again before it is re-armed, a single path is not
// enough, and the flow returns to trimmed.
//
// Two invariants hold. An elimination or a lost path never leaves a flow with an empty path set.
// Within a generation of a path set, paths are only removed, so an elimination can be matched to the
// set that it judged.
package policy
