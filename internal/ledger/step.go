package ledger

import "github.com/oduflow/oduflow-salt/internal/fault"

// Phase says on which side of a step a Hook is called.
type Phase string

// The phases. An error from Before means that the step was not taken, one from
// After that it was taken and reported as failed all the same.
const (
	Before Phase = "before"
	After  Phase = "after"
)

// Hook is the seam at which a test breaks a step: it may kill the process,
// stop it, or return an error. It is nil in production.
type Hook func(step fault.Step, phase Phase) error

// facts are the files that a ledger writes, in the order of a request's life.
// Each is written in three steps: its name with ".write" (content and sync of
// the file), ".link" (it gets its place) and ".sync" (of the folder).
var facts = []string{
	"identity", "generation", "open", "record", "room", "prepared", "fenced", "lapsed", "started",
	"never_began", "refused", "begun", "witness", "finished", "settled",
}

// Steps names every step of a ledger.
func Steps() []fault.Step {
	var steps []fault.Step
	for _, fact := range facts {
		for _, part := range []string{".write", ".link", ".sync"} {
			switch fact + part {
			case "open.link", "record.link", "room.link", "generation.link": // created in their place
				continue
			case "witness.sync": // nothing of it outlives the boot
				continue
			case "generation.sync": // one step with the write
				continue
			}
			steps = append(steps, fault.Step(fact+part))
		}
	}
	return steps
}

// Do takes one named step.
func (h Hook) Do(step fault.Step, take func() error) error {
	if h == nil {
		return take()
	}
	if err := h(step, Before); err != nil {
		return err
	}
	if err := take(); err != nil {
		return err
	}
	return h(step, After)
}
