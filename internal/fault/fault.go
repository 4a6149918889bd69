// Package fault gives each step that matters a name, so that a test can break
// it before, after, or done-but-told-failed. In a production build none of it
// does anything or can be switched on; only programs built with the tag
// "faults" read the environment (see faults.go).
package fault

// Step names one step of masterd. Steps of the minion side are named in
// internal/ledger and internal/minion.
type Step string

// The steps of masterd, in the order of a receipt's life.
const (
	StepBind        Step = "bind"        // the receipt's own transaction
	StepPrepare     Step = "prepare"     // the prepare is published
	StepClaim       Step = "claim"       // the claim's transaction
	StepStart       Step = "start"       // the start is published
	StepAcknowledge Step = "acknowledge" // the master's answer is written
	StepEvidence    Step = "evidence"    // evidence is asked for
	StepFinish      Step = "finish"      // the outcome is written
)

// Steps gives all of them.
func Steps() []Step {
	return []Step{StepBind, StepPrepare, StepClaim, StepStart, StepAcknowledge, StepEvidence, StepFinish}
}
