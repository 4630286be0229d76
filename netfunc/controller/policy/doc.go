// Package policy decides which paths the packets of each flow take, after section
// III of Qian et al., "Enabling eBPF-based packet duplication for robust volumetric
// video streaming": the trigger starts duplication over all paths, the receivers'
// eliminations trim them, the one path left ends it, and the trigger is armed again.
//
// It is a state machine without I/O. The time is a parameter of every event, and
// what is to be done about an event is taken from the engine afterwards:
//
//	         trigger             elimination            one path left
//	armed ───────────► duplicating ─────────► trimmed ─────────► single
//	  ▲  ▲                  ▲  │                │ │                │
//	  │  └── the flow ended ─┼──┴────────────────┘ │                │
//	  │                      └── trigger ──────────┘                │
//	  └────────────────────── after the re-arm time ───────────────┘
//
// Where the trigger fires before it is armed again though duplication had helped, one path was
// too little, and the flow goes back to trimmed.
//
// Two rules hold throughout: a flow that was sent on some path is never left with an
// empty set because of an elimination or a lost path; and within a generation of a
// path set paths are only taken away, so that an elimination can be matched to the
// set that it was about.
package policy
